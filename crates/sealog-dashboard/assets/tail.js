// Events as they arrive, above those of the page. Without this the page is loaded again.
const LIMIT = 200;
let source = null;
/** The last event that was told, so that a pause shows nothing twice. */
let last = "";

function begin() {
  const place = document.querySelector("[data-tail]");
  if (!place) return;
  const rows = place.querySelector("tbody");
  if (!rows) {
    // No event yet: the first one brings the list.
    const waits = document.createElement("p");
    waits.setAttribute("role", "status");
    waits.textContent = "Waiting for the first event…";
    place.append(waits);
    listen(place.dataset.tail, () => location.reload(), (text) => { waits.textContent = text; });
    return;
  }
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const button = make("button", { type: "button", className: "btn live" });
  const more = make("button", { type: "button", className: "btn sm pill", hidden: true });
  more.dataset.key = "r";
  const status = make("span", { className: "small muted" });
  status.setAttribute("role", "status");
  document.getElementById("tools").prepend(status, more, button);
  // The head of a printed page names when the list was retrieved; these rows came later.
  const retrieved = document.querySelector(".paper time");
  const at = retrieved.textContent;
  let waiting = [];
  let arrived = 0;
  let shown = 0;
  const say = (text) => { status.textContent = text; };
  const show = () => {
    const before = rows.rows.length;
    for (const row of waiting) rows.insertAdjacentHTML("afterbegin", row);
    for (let at = rows.rows.length - before; at--;) rows.rows[at].classList.add("fresh");
    waiting = [];
    more.hidden = true;
    while (rows.rows.length > LIMIT) rows.rows[rows.rows.length - 1].remove();
    document.dispatchEvent(new Event("sealog:rows"));
    retrieved.textContent = `${at}, then by live tail,`;
    shown = arrived;
    say(`${arrived} new since you started.`);
  };
  const arrive = (data) => {
    arrived += data.split("</tr>").length - 1;
    waiting.push(data);
    // The list does not move while it is read.
    if (place.getBoundingClientRect().top >= 0) show();
    else {
      more.hidden = false;
      more.textContent = `Show ${arrived - shown} new`;
      say(`${arrived - shown} new.`);
    }
  };
  const stop = (text) => {
    source?.close();
    source = null;
    // Elsewhere a space is for scrolling.
    delete button.dataset.key;
    button.textContent = "Live tail";
    button.setAttribute("aria-pressed", "false");
    say(text);
  };
  const start = () => {
    arrived = shown = 0;
    button.dataset.key = " ";
    button.setAttribute("aria-pressed", "true");
    say("Waiting for events.");
    listen(place.dataset.tail, arrive, stop, say);
  };
  button.addEventListener("click", () => (source ? stop("Paused. Press Live tail to see what you missed.") : start()));
  more.addEventListener("click", () => { scrollTo(0, 0); show(); });
  addEventListener("scroll", () => { if (waiting.length && place.getBoundingClientRect().top >= 0) show(); }, { passive: true });
  stop("");
}

function listen(address, arrive, stop, say) {
  const from = new URL(address, location.href);
  if (last) from.searchParams.set("after", last);
  source = new EventSource(from);
  source.addEventListener("rows", (message) => {
    last = message.lastEventId;
    arrive(message.data);
  });
  source.addEventListener("thinned", (message) => say?.(`${message.data} not shown here to keep up. All are stored.`));
  source.addEventListener("error", () => {
    if (source?.readyState === EventSource.CLOSED) stop("Live tail ended. Reload the page.");
  });
}

begin();
