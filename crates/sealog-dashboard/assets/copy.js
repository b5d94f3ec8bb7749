// Puts a button beside every text that is worth copying. Without this there is the text, which can be selected.
function add(root) {
  for (const text of root.querySelectorAll("[data-copy]:not([data-copied])")) {
    text.dataset.copied = "";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "btn sm copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    text.after(button);
  }
}
if (navigator.clipboard) {
  add(document);
  for (const event of ["htmx:after:swap", "sealog:rows"]) document.addEventListener(event, () => add(document));
}
