// Numbers with their units, and the colours of curves, for all pages.
"use strict";
const units = (() => {
  const light = ["#0b62b5", "#d1495b", "#2a9d5c", "#e08a00", "#7b4fc9", "#008b9a", "#b5651d", "#c23f9b", "#5b6775", "#7a8b00"];
  const dark = ["#6db3ff", "#ff8a94", "#63d297", "#ffc15e", "#b79bff", "#4fd3e0", "#e0a070", "#ff8fdc", "#a9b6c5", "#c9d94f"];
  const trimmed = (number, digits) => String(Number(number.toFixed(digits)));
  function scaled(value, step, units) {
    let unit = 0;
    while (Math.abs(value) >= step && unit + 1 < units.length) { value /= step; unit += 1; }
    return trimmed(value, Math.abs(value) < 100 ? 1 : 0) + (units[unit] && " " + units[unit]);
  }
  const short = {
    bytes: v => scaled(v, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]),
    count: v => v < 1e4 ? trimmed(v, 2) : scaled(v, 1000, ["", "k", "M", "G", "T"]),
    share: v => trimmed(100 * v, 1) + " %",
    seconds: v => trimmed(v, 2) + " s",
    ms: v => trimmed(v, 2) + " ms",
    us: v => v < 1e3 ? trimmed(v, 0) + " us" : v < 1e6 ? trimmed(v / 1e3, v < 1e5 ? 1 : 0) + " ms" : trimmed(v / 1e6, 1) + " s",
    rate: v => (v < 10 ? trimmed(v, 1) : scaled(v, 1000, ["", "k", "M", "G"])) + "/s",
    flow: v => scaled(v, 1024, ["B", "KiB", "MiB", "GiB"]) + "/s",
  };
  const full = { ...short,
    count: v => Math.round(v).toLocaleString("en-US"),
    share: v => (100 * v).toFixed(2) + " %",
    ms: v => v.toFixed(3) + " ms" };
  // Where the axis of a hit ratio begins: at 0, unless the curves would lie on each other there. `[from, to]`.
  function shareRange(min, max) {
    if (!(max > 0)) return [0, 1];
    const spread = max - min, isNarrow = min > 0 && spread < max / 2;
    const step = 10 ** Math.floor(Math.log10(Math.max(spread, 0.002)));
    const from = isNarrow ? Math.max(0, Math.floor((min - spread / 10) / step) * step) : 0;
    return [from, Math.min(1, Math.max(max + (max - from) * 0.06, from + 0.002))];
  }
  const begins = from => from > 0 ? "The vertical axis begins at " + short.share(from) + "." : "";
  return { light, dark, short, full, shareRange, begins };
})();
