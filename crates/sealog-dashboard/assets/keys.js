// Single keys for those who like them. Every one of them does what a link or a field of the page does; where they were turned
// off on the Account page, this file is not loaded. They are listed in the dialog, and on the Account page.
const WAIT_MS = 1500;
const dialog = document.getElementById("keys");
let goUntil = 0;

const isTyping = (target) =>
  target instanceof Element && target.closest("input, textarea, select, [contenteditable], dialog");

/** The link of each row that leads to what the row is about. */
const rows = () => [...document.querySelectorAll("main tbody th[scope=row] a[href]")];

/** The row that has the focus, or else the one that is open beside the list. */
const here = (all) => {
  const at = all.findIndex((link) => link.closest("tr").contains(document.activeElement));
  return at < 0 ? all.findIndex((link) => link.closest("tr[aria-current]")) : at;
};

/** The link of the row that has the focus. */
const current = () => { const all = rows(); return all[here(all)]; };

function step(by) {
  const all = rows();
  if (!all.length) return false;
  const at = here(all);
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1);
  all[next].focus();
  return true;
}

function click(element) {
  element?.click();
  return Boolean(element);
}

const open = () => click(current());

/** A link or a button of the page that has this key. */
const press = (key) => click(document.querySelector(`[data-key="${key}"]:not([hidden])`));

/** The value of a row that has the focus; where none has it, the row's first one gets it. */
function value() {
  const value = document.activeElement.closest?.("a.f");
  if (value) return value;
  current()?.closest("tr").querySelector("a.f")?.focus();
  return null;
}

const filter = () => click(value()) || Boolean(current());

/** As a click with the Alt key does: `query.js`. */
function without(value) {
  value?.dispatchEvent(new MouseEvent("click", { altKey: true, bubbles: true, cancelable: true }));
  return Boolean(value ?? current());
}

/** The event of the row that has the focus, else that of the page: its id, and the address that finds it everywhere. */
function event() {
  const ids = [current()?.pathname.split("/").at(-1), document.querySelector("[data-log-id]")?.dataset.logId];
  const id = ids.find((id) => /^[0-9A-Z]{26}$/.test(id ?? ""));
  if (!id) return null;
  const [, , , project] = location.pathname.split("/");
  return { id, link: new URL(`/app/e/${id}?p=${project}`, location.href).href };
}

function say(text) {
  let status = document.getElementById("said");
  if (!status) {
    status = document.createElement("p");
    status.id = "said";
    status.className = "said";
    status.setAttribute("role", "status");
    document.body.append(status);
  }
  status.textContent = text;
  setTimeout(() => { if (status.textContent === text) status.textContent = ""; }, 3000);
}

function copy(text, what) {
  if (!text) return false;
  const done = navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard"));
  done.then(() => say(`Copied ${what}.`), () => say("Cannot copy: this browser blocks access to the clipboard."));
  return true;
}

const copyId = () => copy(event()?.id, "the log_id");
const copyLink = () => { const found = event(); return copy(found?.link ?? location.href, found ? "a link to the event" : "a link to this page"); };

/** Of the page, else around the row that has the focus. */
function verify() {
  if (press("v")) return true;
  const seq = current()?.closest("tr").querySelector(".c-seq")?.textContent.replaceAll(/[^0-9]/g, "");
  const page = document.querySelector('a[data-go="v"]');
  if (!seq || !page) return false;
  location.assign(`${location.pathname.replace(/\/events$/, "/verify")}?around=${seq}#new`);
  return true;
}

function search() {
  const field = document.getElementById("f-q");
  field?.focus();
  field?.select();
  return Boolean(field);
}

function go(key) {
  return /^[a-z]$/.test(key) && click(document.querySelector(`a[data-go="${key}"]`));
}

function list() {
  dialog?.showModal();
  return Boolean(dialog);
}

const keys = {
  "/": search, j: () => step(1), k: () => step(-1), o: open, f: filter, F: () => without(value()), c: copyId, y: copyLink, v: verify,
  e: () => press("e"), t: () => press("t"), r: () => press("r"), " ": () => press(" "), "?": list,
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Shift" || dialog?.open || isTyping(event.target)) return;
  // A space presses the button, or opens the summary, that has the focus.
  if (event.key === " " && event.target.closest?.("a, button, summary, [tabindex]:not(main)")) return;
  const isGoing = Date.now() < goUntil;
  goUntil = event.key === "g" && !isGoing ? Date.now() + WAIT_MS : 0;
  if (isGoing ? go(event.key) : Object.hasOwn(keys, event.key) && keys[event.key]()) event.preventDefault();
});
