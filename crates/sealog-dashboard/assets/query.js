// A browser holds each hint against all that was typed. This puts what stands before the last term in front of the hints,
// so that they fit behind it; without it they fit behind what the page was opened with.
document.addEventListener("input", ({ target }) => {
  if (target.id !== "f-q" || !target.list) return;
  const { list, value } = target;
  const [old, before] = [list.dataset.before ?? "", value.slice(0, value.lastIndexOf(" ") + 1)];
  if (before === old) return;
  for (const option of list.options) option.value = before + option.value.slice(old.length);
  list.dataset.before = before;
});
