// Numbers, sizes, times and durations as people read them.
const GROUPED = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const number = (value) => (value === null || value === undefined ? "–" : GROUPED.format(value));

export function short(value, digits = 1) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [size, unit] of steps) if (Math.abs(value) >= size) return `${trim(value / size, digits)}${unit}`;
  return trim(value, Math.abs(value) < 10 ? digits : 0);
}

const trim = (value, digits) => String(Number(value.toFixed(digits)));

export function bytes(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  let unit = 0;
  let size = value;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${trim(size, size < 10 && unit ? 1 : 0)} ${UNITS[unit]}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  const s = ms / 1000;
  if (s < 1) return `${trim(ms, ms < 10 ? 1 : 0)} ms`;
  if (s < 60) return `${trim(s, s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const two = (value, size = 2) => String(value).padStart(size, "0");

export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export const preciseTime = (ms) => (ms >= 0 ? `${time(ms)}.${two(ms % 1000, 3)}` : "–");
export const ago = (ms) => (ms ? `${duration(Math.max(0, Date.now() - ms))} ago` : "–");
export const percent = (share) => (share === null || share === undefined || Number.isNaN(share) ? "–" : `${trim(share * 100, share > 0.99 && share < 1 ? 2 : 1)} %`);
export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// The meaning of a setting's value, where its name says the unit.
export function settingValue(name, value) {
  if (value === null || value === undefined) return "";
  const amount = Number(value);
  if (amount >= 9.2e18) return "no limit"; // the largest number that there is
  if (!/^-?\d+$/.test(String(value)) || amount < 0) return amount < 0 && /(ms|bytes)$/.test(name) ? "no limit" : "";
  if (name.endsWith(".ms") || name.endsWith("_ms")) return amount >= 1000 ? duration(amount) : "";
  if (name.endsWith("bytes")) return amount >= 1024 ? bytes(amount) : "";
  return "";
}
