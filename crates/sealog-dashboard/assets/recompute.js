// Hashes the exact text of the event in this browser, and compares. Without this there is the command line.
function add() {
  const source = document.querySelector("[data-recompute]");
  const result = document.getElementById("recompute");
  if (!source || !result || result.firstChild || !crypto.subtle) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "btn primary";
  button.textContent = "Recompute in this browser";
  const outcome = document.createElement("span");
  result.append(button, outcome);
  button.addEventListener("click", async () => {
    outcome.className = "muted";
    outcome.textContent = "Hashing…";
    try {
      const response = await fetch(source.href, { credentials: "same-origin" });
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      const digest = await crypto.subtle.digest("SHA-256", await response.arrayBuffer());
      const hash = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
      const equal = hash === source.dataset.recompute;
      outcome.className = equal ? "result ok" : "result bad";
      outcome.textContent = equal ? `✓ Matches: ${hash}` : `✗ Does not match: ${hash}`;
    } catch (error) {
      outcome.className = "result bad";
      outcome.textContent = `Hashing failed: ${error.message}`;
    }
  });
}
add();
document.addEventListener("sealog:rows", add);
