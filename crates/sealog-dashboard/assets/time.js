// Shows times of events as this place has them, if that was chosen. Without this they are UTC, which is what is stored.
const zone = document.querySelector("[data-zone]");
const KEY = "sealog.local-times";
const isLocal = () => localStorage.getItem(KEY) === "1";
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function show(local = isLocal()) {
  for (const time of document.querySelectorAll("main time[datetime]")) {
    time.dataset.utc ??= time.textContent;
    const date = new Date(time.dateTime);
    if (Number.isNaN(date.getTime())) continue;
    time.textContent = local ? format.format(date) : time.dataset.utc;
    time.title = time.dateTime;
  }
}

if (zone) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "btn quiet sm";
  button.dataset.key = "t";
  const label = () => {
    button.textContent = isLocal() ? "Show UTC" : "Show local times";
    zone.textContent = isLocal() ? "Event times are local." : "Times are UTC.";
  };
  button.addEventListener("click", () => {
    localStorage.setItem(KEY, isLocal() ? "0" : "1");
    label();
    show();
  });
  zone.after(" ", button);
  label();
}
if (isLocal()) show();
// Paper has UTC, as its heads say.
for (const [event, local] of [["beforeprint", false], ["afterprint", true]]) addEventListener(event, () => { if (isLocal()) show(local); });
for (const event of ["htmx:after:swap", "sealog:rows"]) document.addEventListener(event, () => { if (isLocal()) show(); });
