// Curves over time, and curves of advice, for the live page: drawn by uPlot, one function each.
"use strict";
const charts = (() => {
  const { light, dark, short, full } = units;
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const font = "12px system-ui, sans-serif";
  const decades = Array.from({ length: 12 }, (_, power) => 10 ** power);
  const height = width => width < 500 ? 190 : 220;
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const time = s => new Date(1000 * s).toLocaleTimeString();
  const hue = at => (scheme.matches ? dark : light)[at];

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // A place for a chart, with its heading, below `into`.
  function frame(into, title, note) {
    const figure = element("figure", "chart");
    const caption = element("figcaption");
    caption.append(element("strong", "", title), element("span", "", note));
    const place = element("div", "plot");
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", title);
    figure.append(caption, place);
    into.append(figure);
    return { figure, place, note: caption.lastChild };
  }

  const axis = extra => ({
    stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { stroke: color("--grid"), width: 1 }, font, ...extra,
  });

  // Names in the legend are reached and switched by the keyboard too.
  function reachable(place) {
    place.querySelectorAll(".u-legend .u-series:not(:first-child) th").forEach(name => {
      name.tabIndex = 0;
      name.setAttribute("role", "switch");
      const say = () => name.setAttribute("aria-checked", String(!name.parentElement.classList.contains("u-off")));
      say();
      name.addEventListener("click", () => setTimeout(say));
      name.addEventListener("keydown", event => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); name.click(); }
      });
    });
  }

  function follow(place, plot) {
    let width = place.clientWidth;
    new ResizeObserver(() => {
      if (place.clientWidth === width || place.clientWidth === 0) return;
      width = place.clientWidth;
      plot().setSize({ width, height: height(width) });
    }).observe(place);
  }

  // Curves over the last minutes. `series`: {name, of(row), hue, fill}; `stacked`: each stands on those
  // before it. `draw(times, rows, from)` shows other values.
  function overTime(into, { title, note, unit, series, stacked, log }) {
    const { place, note: noted } = frame(into, title, note);
    const shown = series.map(() => true);
    let plot = null, times = [], values = series.map(() => []), from = 0;
    const sums = () => {
      if (!stacked) return values;
      const below = times.map(() => 0);
      return values.map((own, at) => own.map((value, i) => {
        if (value == null) return null;
        if (shown[at]) below[i] += value;
        return below[i];
      }));
    };
    const most = () => unit === "share" ? 1 : 0;
    function build() {
      if (plot) plot.destroy();
      const options = {
        width: place.clientWidth, height: height(place.clientWidth),
        scales: {
          x: { time: true, range: (_, min, max) => [Math.min(from || min, (max || 1) - 30), max || 1] },
          y: log ? { distr: 3, range: (_, min, max) => min == null ? [10, 1e4] : [10 ** Math.floor(Math.log10(Math.max(min, 1))), 10 ** Math.ceil(Math.log10(Math.max(max, 10) * 1.01))] }
            : { range: (_, min, max) => [0, Math.max(most(), max > 0 ? max * (most() ? 1 : 1.1) : unit === "bytes" || unit === "flow" ? 2 ** 20 : 1)] },
        },
        axes: [
          axis({ space: 90, size: 32, values: (_, all) => all.map(time) }),
          axis({ size: 72, values: (_, all) => all.map(v => v == null ? "" : short[unit](v)),
            ...(log ? { splits: (_, __, min, max) => decades.filter(v => v >= min && v <= max), filter: (_, all) => all } : {}),
            ...(unit === "bytes" || unit === "flow" ? { incrs: Array.from({ length: 60 }, (_, power) => 2 ** power) } : {}),
            ...(unit === "count" ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6] } : {}) }),
        ],
        series: [
          { label: "Time", value: (_, v) => v == null ? "" : time(v) },
          ...series.map((one, at) => ({
            label: one.name, show: shown[at], stroke: one.hue == null ? color("--soft") : hue(one.hue), width: stacked ? 1 : 2,
            fill: stacked && at === 0 ? hue(one.hue) + "b0" : one.fill ? hue(one.hue) + "33" : undefined,
            points: { show: (_, __, first, last) => last - first < 2, size: 5 },
            value: (_, __, ___, i) => i == null || values[at][i] == null ? "-" : full[unit](values[at][i]),
          })),
        ],
        bands: stacked ? series.slice(1).map((one, at) => ({ series: [at + 2, at + 1], fill: one.hue == null ? color("--grid") : hue(one.hue) + "b0" })) : [],
        cursor: { drag: { x: false, y: false }, points: { show: !stacked } },
        legend: { live: true },
        hooks: { setSeries: [(_, at, change) => {
          if (at == null || change.show == null) return;
          shown[at - 1] = change.show;
          if (stacked) plot.setData([times, ...sums()]);
          latest();
        }] },
      };
      plot = new uPlot(options, [times, ...sums()], place);
      reachable(place);
      latest();
    }
    // Without a pointer over it the legend has the latest values.
    function latest() {
      if (plot && times.length && plot.cursor.idx == null) plot.setLegend({ idx: times.length - 1 }, false);
    }
    build();
    follow(place, () => plot);
    return {
      build,
      note: text => { noted.textContent = text; },
      draw(newTimes, rows, newFrom) {
        times = newTimes;
        from = newFrom;
        values = series.map(one => rows.map(row => row ? one.of(row) : null));
        plot.setData([times, ...sums()]);
        latest();
        const last = values.map((all, at) => [series[at].name, all.at(-1)]).filter(([, value]) => value != null);
        place.setAttribute("aria-label", title + ". Now: " + (last.length ? last.map(([name, value]) => name + " " + full[unit](value)).join(", ") : "nothing"));
      },
    };
  }

  // Hit ratio by size for each policy and placement, with today's point marked.
  function advice(into, cells) {
    const about = "Estimated from a sample of the requests. The large point is today's cache. Click a name to switch its curve. ";
    const { place, note } = frame(into, "Read hit ratio by size of the cache", about);
    const name = cell => cell.placement === "access" ? cell.policy : cell.policy + ", " + cell.placement;
    const sizes = [...new Set(cells.map(cell => cell.cache_bytes))].sort((a, b) => a - b);
    const names = [...new Set(cells.map(name))];
    const at = (wanted, size) => cells.find(cell => name(cell) === wanted && cell.cache_bytes === size);
    const today = sizes.map(size => cells.find(cell => cell.is_today && cell.cache_bytes === size));
    const columns = names.map(wanted => sizes.map(size => at(wanted, size)));
    const ratios = column => column.map(cell => cell ? cell.read_hit_ratio : null);
    const said = cell => !cell ? "-" : (100 * cell.read_hit_ratio).toFixed(1) + " %" + (cell.error == null ? "" : " \u00b1 " + (100 * cell.error).toFixed(1));
    const powers = Array.from({ length: 70 }, (_, power) => 2 ** (power - 5));
    let plot = null;
    function build() {
      if (plot) plot.destroy();
      plot = new uPlot({
        width: place.clientWidth, height: height(place.clientWidth) + 60,
        scales: {
          x: { time: false, distr: 3, log: 2, range: (_, min, max) => min === max ? [min / 2, max * 2] : [min / 1.1, max * 1.1] },
          y: { range: (_, min, max) => units.shareRange(min, max) },
        },
        axes: [
          axis({ space: 64, splits: (_, __, min, max) => powers.filter(power => power >= min && power <= max), filter: (_, all) => all,
            values: (_, all) => all.map(v => short.bytes(v)), label: "Size", labelSize: 22, labelFont: font }),
          axis({ size: 72, values: (_, all) => all.map(v => short.share(v)) }),
        ],
        series: [
          { label: "Size", value: (_, v) => v == null ? "" : full.bytes(v) },
          ...names.map((label, i) => ({
            label, stroke: hue(i % 10), width: 2, spanGaps: true, dash: i >= 10 ? [2, 3] : undefined,
            points: { show: true, size: 6, fill: color("--card") },
            value: (_, __, ___, idx) => idx == null ? "" : said(columns[i][idx]),
          })),
          { label: "today", stroke: color("--ink"), width: 0, paths: () => null, points: { show: true, size: 14, width: 3, fill: color("--card") },
            value: (_, __, ___, idx) => idx == null ? "" : said(today[idx]) },
        ],
        cursor: { focus: { prox: 24 }, drag: { x: false, y: false } }, focus: { alpha: 0.35 },
        legend: { live: true },
        hooks: { draw: [plot => { note.textContent = about + units.begins(plot.scales.y.min); }] },
      }, [sizes, ...columns.map(ratios), ratios(today)], place);
      reachable(place);
      const now = today.findIndex(cell => cell);
      if (now >= 0) plot.setLegend({ idx: now }, false);
    }
    build();
    follow(place, () => plot);
    const now = today.find(cell => cell);
    place.setAttribute("aria-label", "Read hit ratio by size of the cache" + (now ? ". Today " + full.bytes(now.cache_bytes) + " of " + name(now) + ": " + said(now) : ""));
    return { build };
  }

  return { overTime, advice, element, onScheme: act => scheme.addEventListener("change", act) };
})();
