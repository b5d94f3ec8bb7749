// The secret of a link stands behind its "#", which browsers send to no server. It goes into the form, and out of
// the address. Without this it can be pasted.
const field = document.querySelector("[data-link]");
const secret = location.hash.slice(1);
if (field && secret) {
  field.querySelector("input").value = secret;
  field.hidden = true;
  history.replaceState(null, "", location.pathname + location.search);
  const form = field.closest("form");
  if ("submit" in form.dataset) form.requestSubmit();
}
