// The one query of a list: suggestions for the term at the cursor, a chip that becomes text again, a value that is left out with
// the Alt key, a search that goes on by itself once. Without this there are the browser's own suggestions, links and buttons.
const SHOWN = 8;
/** A term: what has no space in it but for quotes. */
const TERM = /(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g;
const field = document.getElementById("f-q");
const kept = field?.form.querySelector('input[type=hidden][name="q"]');

/** Searches of this tab, for the person who made them; they end with the tab. */
const key = `sealog.searches ${document.querySelector(".rail-foot a")?.textContent} ${location.pathname}`;
const recent = JSON.parse(sessionStorage.getItem(key) ?? "[]");
if (kept?.value) sessionStorage.setItem(key, JSON.stringify([kept.value, ...recent.filter((other) => other !== kept.value)].slice(0, SHOWN)));

function suggest() {
  const hints = [...field.list.options].map(({ value, label }) => ({ value, note: value === label ? "" : label }));
  const list = document.createElement("ul");
  list.id = "q-list";
  list.className = "suggestions";
  list.hidden = true;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  field.removeAttribute("list");
  for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"], ["aria-controls", list.id], ["aria-expanded", "false"]]) field.setAttribute(name, value);
  field.after(list);
  let [options, at] = [[], -1];

  /** The term around the cursor: where it begins, and what of it stands before the cursor. */
  const typed = () => {
    const before = field.value.slice(0, field.selectionStart);
    const [term] = /(?:[^\s"]|"(?:[^"\\]|\\.)*"?)*$/.exec(before);
    return { start: before.length - term.length, term };
  };
  const close = () => {
    list.hidden = true;
    at = -1;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const mark = (next) => {
    at = next;
    [...list.children].forEach((option, index) => option.setAttribute("aria-selected", index === at));
    if (at < 0) field.removeAttribute("aria-activedescendant");
    else field.setAttribute("aria-activedescendant", list.children[at].id);
  };
  const choose = ({ value, isWhole }) => {
    if (isWhole) {
      field.value = value;
      kept.value = "";
      field.form.requestSubmit();
      return;
    }
    const { start, term } = typed();
    const end = start + /^\S*/.exec(field.value.slice(start))[0].length;
    const text = (term.startsWith("-") ? "-" : "") + value + (/[:.]$/.test(value) ? "" : " ");
    field.setRangeText(text, start, Math.max(end, start + term.length), "end");
    show();
  };
  function show() {
    const term = typed().term.replace(/^-/, "").toLowerCase();
    const fits = hints.filter(({ value }) => value.toLowerCase().startsWith(term) && value.toLowerCase() !== term);
    const whole = field.value ? [] : recent.map((value) => ({ value, note: "Recent", isWhole: true }));
    options = [...whole, ...fits].slice(0, SHOWN);
    list.replaceChildren(...options.map((option, index) => {
      const item = document.createElement("li");
      item.id = `q-${index}`;
      item.setAttribute("role", "option");
      const code = document.createElement("code");
      code.textContent = option.value;
      const note = document.createElement("span");
      note.className = "muted small";
      note.textContent = option.note;
      item.append(code, note);
      item.addEventListener("pointerdown", (event) => { event.preventDefault(); choose(option); });
      return item;
    }));
    close();
    list.hidden = options.length === 0;
    field.setAttribute("aria-expanded", String(!list.hidden));
  }
  field.addEventListener("input", show);
  field.addEventListener("click", show);
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && list.hidden) show();
    else if (step) mark((at + step + options.length) % options.length);
    else if (event.key === "Escape" && !list.hidden) close();
    else if (event.key === "Enter" && at >= 0) choose(options[at]);
    else if (event.key === "Backspace" && !field.value && kept.value) edit();
    else return;
    event.preventDefault();
  });
}

/** The last chip is text again. */
function edit() {
  const terms = kept.value.match(TERM);
  field.value = terms.pop();
  kept.value = terms.join(" ");
  [...document.querySelectorAll("[data-term]")].at(-1).remove();
}

async function goOn(link) {
  const foot = link.closest(".foot");
  const status = document.createElement("span");
  status.setAttribute("role", "status");
  status.textContent = "Searching further…";
  foot.append(status);
  const answer = await fetch(link.href).catch(() => null);
  if (!answer?.ok) return status.remove();
  // The search has led to one event, or the session is over.
  if (answer.redirected) return location.assign(answer.url);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const rows = page.querySelectorAll(".events tbody tr");
  document.querySelector(".events tbody").append(...rows);
  if (rows.length || !page.querySelector("a[data-on]")) document.querySelector(".scroll + p")?.remove();
  const rest = page.querySelector(".scroll + p");
  if (rest && !document.querySelector(".events tbody tr, .scroll + p")) document.querySelector(".scroll").after(rest);
  const [next, said] = [page.querySelector('.foot [rel="next"], .foot > .end'), page.querySelector(".foot > span")];
  foot.replaceChildren(...[said, next].filter((part, index, all) => part && all.indexOf(part) === index));
  document.dispatchEvent(new Event("sealog:rows"));
}

if (field?.list) suggest();
const next = document.querySelector("a[data-on]");
if (next && !new URLSearchParams(location.search).has("cursor")) goOn(next);

// A link by a value ends with the term that asks for it.
document.addEventListener("click", (event) => {
  const value = event.altKey && event.target.closest?.("a.f");
  if (!value) return;
  event.preventDefault();
  const list = new URL(location.href);
  const term = new URL(value.href).searchParams.get("q").match(TERM).at(-1);
  list.searchParams.set("q", `${list.searchParams.get("q") ?? ""} -${term}`.trim());
  for (const name of ["cursor", "trail"]) list.searchParams.delete(name);
  location.assign(list);
});
