// How numbers, times and names are written. frontend/figures.py writes the same on the server.

export const UNKNOWN = "–";

// Not by Intl.NumberFormat: to make the first one takes a browser 25 ms.
function whole(value) {
  return value.toFixed(0).replace(/\B(?=(\d{3})+$)/g, ",");
}

function significant(value) {
  const magnitude = Math.abs(value);
  if (magnitude >= 99.95) return whole(value);
  const text = value.toFixed(magnitude >= 9.995 ? 1 : 2);
  return text.replace(/\.?0+$/, "");
}

export function count(value) {
  if (value == null) return UNKNOWN;
  const magnitude = Math.abs(value);
  if (magnitude < 100_000) return whole(Math.trunc(value));
  if (magnitude >= 1e9) return `${significant(value / 1e9)} G`;
  if (magnitude >= 1e6) return `${significant(value / 1e6)} M`;
  return `${significant(value / 1e3)} k`;
}

export function channels(value) {
  return `${count(value)} channel${value === 1 ? "" : "s"}`;
}

export function consumers(value) {
  return `${count(value)} consumer${value === 1 ? "" : "s"}`;
}

export function rate(value) {
  if (value == null) return UNKNOWN;
  const magnitude = Math.abs(value);
  if (magnitude < 0.005) return "0";
  if (magnitude >= 100_000) return count(value);
  if (magnitude >= 9_999.5) return `${significant(value / 1e3)} k`;
  return significant(value);
}

export function net(value) {
  const text = rate(value);
  return value != null && value > 0 && text !== "0" ? `+${text}` : text;
}

export function size(value) {
  if (value == null) return UNKNOWN;
  if (Math.abs(value) < 1024) return `${Math.trunc(value)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = -1;
  do { value /= 1024; unit += 1; } while (Math.abs(value) >= 1023.5 && unit < units.length - 1);
  return `${significant(value)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds == null) return UNKNOWN;
  if (seconds < 9.95) return seconds % 1 >= 0.05 ? `${seconds.toFixed(1)} s` : `${Math.trunc(seconds)} s`;
  if (seconds < 120) return `${Math.trunc(seconds)} s`;
  let minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  minutes %= 60;
  if (hours < 48) return minutes && hours < 10 ? `${hours} h ${minutes} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d`;
}

export function text(value) {
  return value == null ? UNKNOWN : String(value);
}

export const FORMATS = { count, channels, consumers, rate, net, size, duration, text };

/** A function that writes times; the browser's formatter, which is slow to make, is made when it is needed. */
export function timeFormat(options) {
  let formatter;
  return (milliseconds) => (formatter ??= new Intl.DateTimeFormat(undefined, options)).format(milliseconds);
}

const day = timeFormat({ dateStyle: "medium" });

/** The time of day in the viewer's zone. */
export function timeOfDay(milliseconds) {
  const time = new Date(milliseconds);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** Day and time in the viewer's zone. */
export function moment(milliseconds) {
  return `${day(milliseconds)} ${timeOfDay(milliseconds)}`;
}

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\u061c\ufeff]/u;
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escaped(character) {
  const code = character.codePointAt(0);
  return NAMED[character] ?? (code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`);
}

/** An element that shows a name of a user's choosing: text only, unseen characters as escapes. */
export function nameElement(name) {
  const element = document.createElement("bdi");
  element.className = "name";
  element.dir = "auto";
  if (name === "") {
    element.classList.add("name-empty");
    element.textContent = "(empty)";
  }
  let plain = "";
  for (const character of name) {
    if (!UNSEEN.test(character)) { plain += character; continue; }
    if (plain) element.append(plain);
    plain = "";
    const escape = document.createElement("span");
    escape.className = "escape";
    escape.textContent = escaped(character);
    element.append(escape);
  }
  if (plain) element.append(plain);
  return element;
}
