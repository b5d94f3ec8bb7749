// A click on a value of a list with the Alt key down leaves out events that have it. Without this there is the page of the
// event, whose values have a link each that does so, and the key F.
/** Parameters of the list that stand for a field of the search. */
const PARAMETERS = { action: "action", actor: "actor_id", resource: "resource" };

/** As it would be typed: in quotes where a part of it would mean something else. */
const term = (field, value) =>
  /^[^\s\u0085"\\*<>]+$/.test(value) ? `${field}:${value}` : `${field}:"${value.replaceAll(/["\\]/g, "\\$&")}"`;

/** A link has its term, or the field whose parameter it sets: rows repeat nothing. */
function termOf(link) {
  const field = link.dataset.f;
  return Object.hasOwn(PARAMETERS, field) ? term(field, new URL(link.href).searchParams.get(PARAMETERS[field])) : field;
}

document.addEventListener("click", (event) => {
  const value = event.altKey && event.target.closest?.("a[data-f]");
  if (!value) return;
  event.preventDefault();
  const list = new URL(location.href);
  list.searchParams.set("q", `${list.searchParams.get("q") ?? ""} -${termOf(value)}`.trim());
  for (const name of ["cursor", "trail"]) list.searchParams.delete(name);
  location.assign(list);
});
