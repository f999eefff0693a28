// Show times in the viewer's zone and update ages. Without this script pages show UTC.
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function ageText(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}

export function clockText(milliseconds) {
  return clock.format(new Date(milliseconds));
}

function refresh(root = document) {
  for (const element of root.querySelectorAll("time[data-age]")) {
    element.textContent = ageText((Date.now() - Date.parse(element.dateTime)) / 1000);
  }
}

function localise(root = document) {
  for (const element of root.querySelectorAll("time[data-clock]")) {
    element.textContent = clockText(Date.parse(element.dateTime));
  }
  for (const element of root.querySelectorAll("time[data-moment]")) {
    element.textContent = moment.format(new Date(element.dateTime));
  }
  for (const element of root.querySelectorAll("[data-zone]")) {
    element.textContent = "your time";
  }
}

localise();
refresh();
setInterval(refresh, 1000);
document.body.addEventListener("htmx:afterSwap", () => {
  localise();
  refresh();
});
