// A row opens beside the list, and rows are selected to export, copy or add them to a case. Without this a row opens as a page.
const table = document.querySelector("table.events");
/** Ranges of numbers that one search takes. */
const RANGES = 32;
const rows = () => [...table.querySelectorAll("tbody th a")];
let [drawer, body, shown, asked] = [];

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const button = (text, act) => {
  const made = make("button", { type: "button", className: "btn sm" }, text);
  made.addEventListener("click", act);
  return made;
};

function build() {
  const page = make("a", { className: "btn sm end" }, "Open page");
  body = make("div", { className: "stack pad" });
  drawer = make("section", { className: "drawer", tabIndex: -1 },
    make("p", { className: "row" }, button("Previous", () => move(-1)), button("Next", () => move(1)), page, button("Close", close)), body);
  drawer.setAttribute("aria-label", "Event");
  drawer.page = page;
  document.querySelector(".shell").append(drawer);
}

async function open(link, isFocused = true) {
  asked?.abort();
  asked = new AbortController();
  const answer = await fetch(link.href, { headers: { "HX-Request": "true" }, signal: asked.signal }).catch(() => null);
  if (!answer) return;
  // What it says is a page of its own: not found, signed out.
  if (!answer.ok || answer.redirected) return location.assign(link.href);
  const text = await answer.text();
  if (!drawer) build();
  shown?.closest("tr").removeAttribute("aria-current");
  shown = link;
  link.closest("tr").setAttribute("aria-current", "true");
  body.innerHTML = text;
  drawer.page.href = link.href;
  drawer.hidden = false;
  drawer.scrollTop = 0;
  document.dispatchEvent(new Event("sealog:rows"));
  if (isFocused) drawer.focus();
}

function move(by) {
  const all = rows();
  const next = all[all.indexOf(shown) + by];
  if (next) open(next);
}

function close() {
  drawer.hidden = true;
  shown.closest("tr").removeAttribute("aria-current");
  shown.focus();
}

/** Numbers as ranges, the way a search takes them. */
function ranges(seqs) {
  const found = [];
  for (const seq of seqs.sort((one, other) => one - other)) {
    if (found.at(-1)?.[1] === seq - 1) found.at(-1)[1] = seq;
    else found.push([seq, seq]);
  }
  return found.map(([from, to]) => (from === to ? `seq:${from}` : `seq:${from}..${to}`));
}

const seqOf = (link) => Number(link.textContent.replaceAll(/\D/g, ""));

function selection() {
  const status = make("span", {});
  status.setAttribute("role", "status");
  const link = document.querySelector('#tools a[data-key="e"]');
  const chosen = () => rows().filter((row) => row.parentElement.querySelector("input")?.checked);
  const exported = () => {
    const terms = ranges(chosen().map(seqOf));
    if (terms.length > RANGES) status.textContent = `An export takes up to ${RANGES} separate ranges. Select fewer rows.`;
    else location.assign(`${new URL(link.href).pathname}?${new URLSearchParams({ q: terms.join(" ") })}`);
  };
  const copied = () => navigator.clipboard.writeText(chosen().map((row) => row.pathname.split("/").at(-1)).join("\n"))
    .then(() => { status.textContent = "Copied the log_ids."; });
  const bar = make("p", { className: "row selected", hidden: true }, status);
  if (link) bar.append(button("Export selected", exported));
  if (table.dataset.case) bar.append(button("Add to case", () => location.assign(`${table.dataset.case}&${ranges(chosen().map(seqOf)).map((term) => term.replace(":", "=")).join("&")}`)));
  if (navigator.clipboard) bar.append(button("Copy log_ids", copied));
  bar.append(button("Clear", () => { for (const row of chosen()) row.parentElement.querySelector("input").checked = false; say(); }));
  const say = () => {
    const count = chosen().length;
    bar.hidden = count === 0;
    status.textContent = `${count} selected`;
  };
  table.closest(".card").append(bar);
  table.addEventListener("change", say);
  const add = () => {
    for (const row of rows()) {
      if (row.parentElement.querySelector("input")) continue;
      const box = make("input", { type: "checkbox" });
      box.setAttribute("aria-label", `Select ${row.textContent}`);
      row.before(box);
    }
  };
  add();
  document.addEventListener("sealog:rows", add);
}

if (table) {
  table.addEventListener("click", (event) => {
    const link = event.target.closest("tbody th a");
    const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    // A narrow screen has no room beside the list.
    if (!link || !isPlain || matchMedia("(max-width: 860px)").matches) return;
    event.preventDefault();
    open(link);
  });
  // Rows that are walked through by keys are read on the way.
  table.addEventListener("focusin", ({ target }) => {
    if (drawer && !drawer.hidden && target !== shown && target.matches("tbody th a")) open(target, false);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && drawer && !drawer.hidden && !event.target.closest("dialog, .search")) close();
  });
  selection();
}

// The row that is compared stands beside its comparison.
if (matchMedia("(min-width: 1181px)").matches) document.querySelector(".rv tr[aria-current]")?.scrollIntoView({ block: "center" });
