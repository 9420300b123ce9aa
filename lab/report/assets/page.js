// Draws the curves of the page and sorts its tables. The page is whole without it, but for the curves.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const { light, dark, short, full } = units;
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const print = matchMedia("print");

  function options(chart, width, shown, begins) {
    const style = getComputedStyle(document.documentElement);
    const color = name => style.getPropertyValue(name).trim();
    const palette = scheme.matches && !print.matches ? dark : light;
    const powers = [];
    for (let power = 2 ** -10; power < 2 ** 60; power *= 2) powers.push(power);
    const ticks = (room, min, max) => {
      const all = powers.filter(power => power >= min && power <= max);
      const skip = Math.max(1, Math.ceil(all.length * 64 / room));
      return all.filter((_, at) => (all.length - 1 - at) % skip === 0);
    };
    const axis = (of, side) => ({
      ...(of.log ? { splits: (plot, _, min, max) => ticks(plot.width - 90, min, max), filter: (_, all) => all } : {}),
      ...(of.unit === "bytes" && !of.log ? { incrs: powers } : {}),
      stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { stroke: color("--grid"), width: 1 },
      values: (_, all) => all.map(v => v == null ? "" : short[of.unit](v)), font: "12px system-ui, sans-serif",
      ...(side ? { size: 72 } : { space: 64, label: of.label, labelSize: 22, labelFont: "12px system-ui, sans-serif" }),
    });
    const paths = { steps_before: uPlot.paths.stepped({ align: -1 }), steps_after: uPlot.paths.stepped({ align: 1 }) };
    const curve = (series, at) => {
      const stroke = palette[at % palette.length];
      return {
        label: series.name, show: shown[at], stroke, width: 2, spanGaps: true,
        dash: series.shape === "dashed" ? [6, 4] : at >= palette.length ? [2, 3] : undefined,
        paths: paths[series.shape], fill: paths[series.shape] ? stroke + "22" : undefined,
        points: { show: series.shape === "points" || series.shape === "dashed", size: 6, fill: color("--card") },
        value: (_, v) => v == null ? "" : full[chart.y.unit](v),
      };
    };
    // What is filled to the ground shows its height, and begins there.
    const isFilled = chart.series.some(series => paths[series.shape]);
    const range = (_, min, max) => chart.y.unit !== "share" ? [0, max > 0 ? max * 1.06 : 1]
      : isFilled ? [0, max > 0 ? Math.min(max * 1.06, Math.max(1, max)) : 1] : units.shareRange(min, max);
    return {
      width, height: width < 500 ? 260 : 340,
      scales: {
        x: { time: false, distr: chart.x.log ? 3 : 1, log: 2,
             range: (_, min, max) => min === max ? [min / 2, max * 2] : [min, max] },
        y: { range },
      },
      axes: [axis(chart.x, false), axis(chart.y, true)],
      series: [{ label: chart.x.label, value: (_, v) => v == null ? "" : full[chart.x.unit](v) }, ...chart.series.map(curve)],
      cursor: { focus: { prox: 24 }, drag: { x: true, y: false } },
      focus: { alpha: 0.35 },
      legend: { live: true },
      hooks: { draw: [plot => { begins.textContent = units.begins(chart.y.unit === "share" ? plot.scales.y.min : 0); }] },
    };
  }

  const plots = charts.map((chart, at) => {
    const place = document.getElementById("chart-" + at);
    const data = [chart.xs, ...chart.series.map(series => series.ys)];
    const shown = chart.series.map(series => series.shown);
    const begins = document.createElement("span");
    begins.className = "begins";
    place.before(begins);
    let plot = null;
    function draw() {
      if (plot) {
        plot.series.slice(1).forEach((series, i) => { shown[i] = series.show; });
        plot.destroy();
      }
      plot = new uPlot(options(chart, place.clientWidth, shown, begins), data, place);
      place.querySelectorAll(".u-legend .u-series:not(:first-child) th").forEach(name => {
        name.tabIndex = 0;
        name.addEventListener("keydown", event => {
          if (event.key === "Enter" || event.key === " ") { event.preventDefault(); name.click(); }
        });
      });
    }
    draw();
    if (chart.series.length > 8) {
      const row = document.createElement("p");
      row.className = "all";
      [["Show all", true], ["Hide all", false]].forEach(([text, show]) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = text;
        button.addEventListener("click", () => plot.batch(() =>
          chart.series.forEach((_, i) => plot.setSeries(i + 1, { show }))));
        row.append(button);
      });
      place.after(row);
    }
    let width = place.clientWidth;
    new ResizeObserver(() => {
      if (place.clientWidth === width || place.clientWidth === 0) return;
      width = place.clientWidth;
      plot.setSize({ width, height: width < 500 ? 260 : 340 });
    }).observe(place);
    return draw;
  });
  const redraw = () => plots.forEach(draw => draw());
  scheme.addEventListener("change", redraw);
  print.addEventListener("change", redraw);

  document.querySelectorAll("figure.table table").forEach(table => {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const isNumber = head.classList.contains("number");
      const before = head.getAttribute("aria-sort");
      const way = before === (isNumber ? "descending" : "ascending") ? (isNumber ? 1 : -1) : (isNumber ? -1 : 1);
      const key = row => {
        const cell = row.cells[column];
        return isNumber ? Number(cell.dataset.value ?? NaN) : cell.textContent;
      };
      const compare = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (!isNumber) return way * x.localeCompare(y);
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        return way * (x - y);
      };
      body.append(...[...body.rows].sort(compare));
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    }));
  });
})();
