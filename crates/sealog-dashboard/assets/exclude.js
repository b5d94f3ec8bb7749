// A click on a value of a list with the Alt key down leaves out events that have it. Without this there is the page of the
// event, whose values have a link each that does so, and the key F.
document.addEventListener("click", (event) => {
  const value = event.altKey && event.target.closest?.("a[data-f]");
  if (!value) return;
  event.preventDefault();
  const list = new URL(location.href);
  list.searchParams.set("q", `${list.searchParams.get("q") ?? ""} -${value.dataset.f}`.trim());
  for (const name of ["cursor", "trail"]) list.searchParams.delete(name);
  location.assign(list);
});
