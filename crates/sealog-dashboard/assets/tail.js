// Events as they arrive, above those of the page. Without this the page is loaded again.
const LIMIT = 200;
let source = null;
/** The last event that was told, so that a pause shows nothing twice. */
let last = "";

function begin() {
  source?.close();
  source = null;
  last = "";
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
  const bar = document.createElement("p");
  bar.className = "tail";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "btn sm";
  const more = document.createElement("button");
  more.type = "button";
  more.className = "btn sm pill";
  more.dataset.key = "r";
  more.hidden = true;
  const status = document.createElement("span");
  status.setAttribute("role", "status");
  bar.append(button, more, status);
  place.prepend(bar);
  let waiting = [];
  let arrived = 0;
  let shown = 0;
  const say = (text) => { status.textContent = text; };
  const show = () => {
    for (const row of waiting) rows.insertAdjacentHTML("afterbegin", row);
    waiting = [];
    more.hidden = true;
    while (rows.rows.length > LIMIT) rows.rows[rows.rows.length - 1].remove();
    document.dispatchEvent(new Event("sealog:rows"));
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
    button.textContent = "Live";
    button.setAttribute("aria-pressed", "false");
    say(text);
  };
  const start = () => {
    arrived = shown = 0;
    button.dataset.key = " ";
    button.textContent = "Pause";
    button.setAttribute("aria-pressed", "true");
    say("Waiting for events.");
    listen(place.dataset.tail, arrive, stop, say);
  };
  button.addEventListener("click", () => (source ? stop("Paused. Select Live to see what you missed.") : start()));
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
    if (source?.readyState === EventSource.CLOSED) stop("Live view ended. Reload the page.");
  });
}

begin();
document.addEventListener("htmx:after:swap", begin);
