// Single keys for those who like them. Every one of them does what a link or a field of the page does; where they were turned
// off on the Account page, this file is not loaded. They are listed in the dialog, and on the Account page.
const WAIT_MS = 1500;
const dialog = document.getElementById("keys");
let goUntil = 0;

const isTyping = (target) =>
  target instanceof Element && target.closest("input, textarea, select, [contenteditable], dialog");

/** The link of each row that leads to what the row is about. */
const rows = () => [...document.querySelectorAll("main tbody th[scope=row] a[href]")];

const here = (all) => all.findIndex((link) => link.closest("tr").contains(document.activeElement));

function step(by) {
  const all = rows();
  if (!all.length) return false;
  const at = here(all);
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1);
  all[next].focus();
  return true;
}

function open() {
  const all = rows();
  const link = all[here(all)];
  link?.click();
  return Boolean(link);
}

function search() {
  const field = document.getElementById("f-q");
  field?.focus();
  field?.select();
  return Boolean(field);
}

function go(key) {
  const link = /^[a-z]$/.test(key) && document.querySelector(`a[data-go="${key}"]`);
  if (link) link.click();
  return Boolean(link);
}

function list() {
  dialog?.showModal();
  return Boolean(dialog);
}

const keys = { "/": search, j: () => step(1), k: () => step(-1), o: open, "?": list };

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Shift" || dialog?.open || isTyping(event.target)) return;
  const isGoing = Date.now() < goUntil;
  goUntil = event.key === "g" && !isGoing ? Date.now() + WAIT_MS : 0;
  if (isGoing ? go(event.key) : keys[event.key]?.()) event.preventDefault();
});
