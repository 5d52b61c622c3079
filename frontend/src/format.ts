/** Numbers, sizes and times as people read them; the same units as the rest of fsspeckit prints. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 });
const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** A whole number with separators. */
export function count(value: number): string {
  return whole.format(value);
}

/** A number and a noun, which gets an "s" unless the number is 1. */
export function counted(value: number, what: string): string {
  return `${count(value)} ${what}${value === 1 ? "" : "s"}`;
}

/** A number of bytes with a unit. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${count(value)} B`;
  let power = 1;
  while (power < 4 && value >= 999.95 * 1000 ** power) power += 1;
  return `${short.format(value / 1000 ** power)} ${UNITS[power] ?? ""}`;
}

/** A limit, which is a power of two: in MiB where it has whole ones, as the other commands print it. */
export function binary(value: number): string {
  const mebibytes = value / 2 ** 20;
  return Number.isInteger(mebibytes) && mebibytes > 0 ? `${count(mebibytes)} MiB` : bytes(value);
}

/** A duration. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.9995) return `${whole.format(seconds * 1000)} ms`;
  if (seconds < 99.95) return `${short.format(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  return `${whole.format(Math.floor(minutes / 60))} h ${minutes % 60} min`;
}

/** A time in UTC, to the second. */
export function time(iso: string): string {
  const text = iso.slice(0, 19).replace("T", " ");
  return text === "" ? "–" : `${text} UTC`;
}

/** A share of a whole as a percentage, which is 0 or 100 only if it is exactly that. */
export function percent(part: number, total: number): string {
  if (total === 0) return "–";
  const value = (100 * part) / total;
  if (value > 0 && value < 1) return "under 1 %";
  if (value > 99 && value < 100) return "over 99 %";
  return `${whole.format(value)} %`;
}

/** The last part of a path. */
export function baseName(path: string): string {
  return path.replace(/\/+$/, "").split("/").pop() ?? path;
}

/** Words joined as a list. */
export function listed(words: readonly string[]): string {
  return words.join(", ");
}
