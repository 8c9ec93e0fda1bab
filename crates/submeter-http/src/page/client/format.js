// Figures as [number, unit], so that a column can align the one and mute the other.

const NBSP = "\u202f";
const sig3 = (n) => n >= 99.95 ? n.toFixed(0) : n >= 9.995 ? n.toFixed(1) : n.toFixed(2);

function scaled(n, step, units) {
  let i = 0;
  while (Math.abs(n) >= step * 0.9995 && i < units.length - 1) { n /= step; i++; }
  return [i === 0 ? (Number.isInteger(n) || n >= 99.95 ? n.toFixed(0) : n.toFixed(1)) : sig3(n), units[i]];
}

const format = {
  rate: (n) => n === 0 ? ["0", ""] : n < 0.05 ? ["<0.1", ""] : scaled(n, 1000, ["", "k", "M", "G"]),
  count: (n) => scaled(n, 1000, ["", "k", "M", "G", "T"]),
  exact: (n) => [Math.round(n).toLocaleString("en-US").replaceAll(",", NBSP), ""],
  bytes: (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]),
  byteRate: (n) => { const [v, u] = scaled(n, 1024, ["B", "KiB", "MiB", "GiB"]); return [v, u + "/s"]; },
  ns: (n) => {
    if (n === null || n === undefined) return ["–", ""];
    for (const [size, unit] of [[1, "ns"], [1e3, "µs"], [1e6, "ms"]]) {
      if (n < size * 999.5) return [size === 1 ? n.toFixed(0) : sig3(n / size), unit];
    }
    return [sig3(n / 1e9), "s"];
  },
  percent: (r) => r === null || r === undefined ? ["–", ""] : [(r * 100).toFixed(r >= 0.99995 ? 0 : 1), "%"],
  // On an axis, where 4.00 tells no more than 4.
  tick: ([n, u]) => format.text([n.includes(".") ? n.replace(/\.?0+$/, "") : n, u]),
  text: ([n, u]) => u ? n + NBSP + u : n,
};
function duration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d) return `${d}${NBSP}d ${h}${NBSP}h`;
  if (h) return `${h}${NBSP}h ${m}${NBSP}min`;
  return m ? `${m}${NBSP}min ${s % 60}${NBSP}s` : `${s}${NBSP}s`;
}
