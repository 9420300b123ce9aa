// The live page: reads the server's events, and says what they mean. Texts of the server, such as
// names of volumes and clients, are always set as text.
"use strict";
(() => {
  const { short } = units;
  const { element } = charts;
  const byId = id => document.getElementById(id);
  const MINUTE_S = 60, QUIET_MS = 10000, RETRY_MS = [1000, 2000, 5000, 10000], ADVICE_MS = 10000;

  // ---- The numbers ----
  // Names as in the JSON of a volume: the hits of blocks that clients had evicted, by how these came here, and the evictions that clients told.
  const HANDED_OVER = ["cooperation.demoted_hits"], RELOADED = ["cooperation.reloaded_hits"], STAGED = ["cooperation.staged_hits", "cooperation.restaged_hits"];
  const EVICTED_HITS = [...HANDED_OVER, ...RELOADED, ...STAGED];
  const FLASH_HITS = "flash.hits", FLASH_WRITTEN = "flash.written_bytes";
  const TOLD = ["cooperation.hints", "aware.hints"], TOO_LATE = ["cooperation.late_hints", "cooperation.stale_hints", "aware.late_hints", "aware.stale_hints"];
  const sumOf = (names, number) => names.reduce((sum, name) => sum + number(name), 0);

  // ---- What the server said ----
  let fields = {}, keepsS = 600, samples = [], state = null, before = null, advised = null;
  let chosen = null, isPaused = false, heardAt = 0, token = null, isDue = false, isLost = false;

  function take(name, data) {
    if (name === "hello") {
      fields = Object.fromEntries(data.fields.map((field, at) => [field, at]));
      keepsS = data.keeps_s;
      samples = [];
      before = state = null;
      byId("version").textContent = data.version;
    } else if (name === "sample") {
      samples.push(data);
      const oldest = data.t - 1000 * keepsS;
      while (samples.length && samples[0].t < oldest) samples.shift();
    } else if (name === "state") {
      before = state;
      state = data;
      state.heard = performance.now();
      if (chosen !== null && !state.order.includes(chosen)) chosen = null;
    }
    if (!isDue) { isDue = true; setTimeout(show); }
  }

  // The sums of a volume's samples within the last seconds; of all volumes without a name.
  function lately(volume, seconds) {
    const since = samples.length ? samples.at(-1).t - 1000 * seconds : 0;
    const sums = { seconds: 0, last: null };
    for (const sample of samples) {
      const row = volume === null ? sample.all : sample.by[volume];
      if (sample.t <= since || !row) continue;
      sums.seconds += sample.s;
      sums.last = row;
      for (const field in fields) sums[field] = (sums[field] || 0) + (row[fields[field]] || 0);
    }
    sums.rate = field => sums.seconds > 0 ? (sums[field] || 0) / sums.seconds : 0;
    sums.now = field => sums.last ? sums.last[fields[field]] : null;
    // Of the last sample that has requests of the kind.
    sums.time = field => {
      for (let at = samples.length - 1; at >= 0 && samples[at].t > since; at -= 1) {
        const row = volume === null ? samples[at].all : samples[at].by[volume];
        if (row && row[fields[field]] != null) return row[fields[field]];
      }
      return null;
    };
    return sums;
  }

  // ---- The answer ----
  const plural = (number, one, many) => number.toLocaleString("en-US") + " " + (number === 1 ? one : many);
  const percent = share => (100 * share).toFixed(1) + " %";
  const duration = s => s < 120 ? s + " s" : s < 7200 ? Math.floor(s / 60) + " min" : s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " days";

  // When the figures were made that are shown.
  const figuresOf = () => new Date(samples.length ? samples.at(-1).t : Date.now()).toLocaleTimeString();

  function health() {
    // What is not heard of any more may be well or not.
    if (isLost) return [{ kind: "bad", text: "Not known: the server is not heard of. These are the figures of " + figuresOf() + "." }];
    const days = Math.floor((state.certificate_expiry_s - Date.now() / 1000) / 86400);
    const found = state.troubles.map(([name, why, waits]) => ({ kind: waits ? "warn" : "bad", text: "Volume " + name + ": " + why + "." }));
    const more = state.troubled + state.waiting - state.troubles.length;
    if (more > 0) found.push({ kind: "bad", text: plural(more, "more volume is", "more volumes are") + " not healthy, or waiting." });
    if (state.certificate_expiry_s && days < 14) found.push({ kind: days < 0 ? "bad" : "warn", text: days < 0 ? "A certificate has expired." : "A certificate expires in " + plural(days, "day", "days") + "." });
    if (state.troubled) return [{ kind: "bad", text: "Not healthy: " + state.troubled + " of " + plural(state.volume_count, "volume", "volumes") + "." }, ...found];
    if (state.waiting) return [{ kind: "warn", text: "Waiting for stores: " + state.waiting + " of " + plural(state.volume_count, "volume", "volumes") + "." }, ...found];
    for (const [name, volume] of Object.entries(state.volumes)) {
      if (volume.flash && !volume.flash.is_used) found.push({ kind: "warn", text: "Volume " + name + ": its flash is not used; the log says why." });
    }
    const all = state.volume_count === 0 ? "no volume is configured." : state.volume_count === 1 ? "the volume is served, and its store answers." : "all " + state.volume_count + " volumes are served, and their stores answer.";
    return [{ kind: "good", text: (state.volume_count ? "Healthy: " : "Idle: ") + all }, ...found];
  }

  function cache(sums) {
    if (!sums.reads) {
      const reads = Object.values(state.volumes).reduce((sum, volume) => sum + (volume.reads || 0), 0);
      const hits = Object.values(state.volumes).reduce((sum, volume) => sum + (volume.read_hits || 0), 0);
      return { text: "Nothing was read in the last minute" + (reads ? "; since the start the cache served " + percent(hits / reads) + " of the blocks read." : ", nor since the start.") };
    }
    const told = sumOf(EVICTED_HITS, field => sums[field]);
    const more = told ? " " + (100 * told / sums.reads).toFixed(1) + " points of it are blocks that clients had evicted." : "";
    const flash = sums[FLASH_HITS] ? " Flash served " + percent(sums[FLASH_HITS] / sums.reads) + " more." : "";
    return { text: "The cache served " + percent(sums.read_hits / sums.reads) + " of the blocks read in the last minute, at " + short.flow(sums.rate("read_bytes")) + "." + flash + more };
  }

  // What was saved, since the start and today; nothing is not said. Older servers do not tell.
  function saved(of) {
    if (!of || !of.since_start || !Object.values(of.since_start).some(number => number !== 0)) return null;
    const whole = number => Math.round(number).toLocaleString("en-US"), seconds = s => s < 100 ? s.toFixed(1) + " s" : duration(Math.round(s));
    const said = (all, prefix) => whole(all[prefix + "disk_reads"]) + " disk reads and " + seconds(all[prefix + "waiting_s"]) + " of waiting";
    const hints = of.since_start.hinted_disk_reads ? "; by hints " + said(of.since_start, "hinted_") : "";
    return "Saved since the start: " + said(of.since_start, "") + hints + "; today (UTC): " + said(of.today, "") + ".";
  }

  function waiting(sums) {
    const found = [];
    const age = sums.now("dirty_age_s") || 0, dirty = sums.now("dirty_bytes") || 0;
    // Whoever has the memory is the reason: what the store has not taken or answered, or replies.
    const isSlow = sums.now("store_oldest_request_seconds") > 0;
    if (sums.now("starved")) found.push(plural(sums.now("starved"), "block waits", "blocks wait") + " for memory until the store has taken changes.");
    if (sums.served_around) found.push(plural(sums.served_around, "block", "blocks") + " went past the cache in the last minute for want of memory: " + (isSlow ? "requests that the store does not answer have it." : "replies have it that clients do not read."));
    if (isSlow && !state.troubles.length) found.push("The oldest request to a store waits for " + duration(sums.now("store_oldest_request_seconds")) + ".");
    if (sums.store_failures) found.push(plural(sums.store_failures, "request", "requests") + " to stores failed in the last minute.");
    if (sums.bounded_writes) found.push(plural(sums.bounded_writes, "written block", "written blocks") + " had to wait for the store, since a bound of dirty data was reached.");
    if (age > 60) found.push("The oldest change waits for its store since " + duration(age) + ".");
    const isBad = found.length > 0;
    if (dirty) found.push(short.bytes(dirty) + " of changes wait to be written out" + (age ? ", the oldest for " + duration(age) : "") + ".");
    if (sums.now("cooperation.reloads_waiting")) found.push(plural(sums.now("cooperation.reloads_waiting"), "evicted block waits", "evicted blocks wait") + " to be read back.");
    const [half, most] = [sums.time("read_miss_p50_us"), sums.time("read_miss_p99_us")];
    if (most != null) found.push("Reads that miss take " + short.us(half) + " in the median, " + short.us(most) + " at 99 %.");
    return { kind: isBad ? "warn" : "", text: found.length ? found.join(" ") : "Nothing waits." };
  }

  // Whether an adviser says more of a volume than that it has not seen enough.
  const isTelling = one => one && (one.state === "ready" || one.state === "changed");

  function advisable() {
    const volumes = advised ? Object.entries(advised.volumes || {}) : [];
    const told = volumes.filter(([, one]) => isTelling(one) && (one.sentences || []).length);
    const total = (advised && advised.total && advised.total.sentences) || [];
    const first = total[0] || (told.length ? (volumes.length > 1 ? told[0][0] + ": " : "") + told[0][1].sentences[0] : null);
    return first ? [{ kind: "advice", text: first }] : [];
  }

  function sentences(list, said) {
    const texts = said.map(one => (one.kind || "") + one.text).join("\n");
    if (list.dataset.said === texts) return;
    list.dataset.said = texts;
    list.replaceChildren(...said.map(one => {
      const item = element("li", one.kind || "");
      item.append(element("p", one.isMore ? "more" : "", one.text));
      return item;
    }));
  }

  function facts(list, texts) {
    if (list.dataset.said === texts.join("\n")) return;
    list.dataset.said = texts.join("\n");
    list.replaceChildren(...texts.map(text => element("li", "", text)));
  }

  // ---- Tables ----
  // `rows`: {key, cells: [text or {text, className, button}]}; a cell changes only if its text does, so
  // that the focus stays and a screen reader is not interrupted.
  function table(id, columns, rows) {
    const made = byId(id), [head, body] = [made.tHead, made.tBodies[0]];
    if (!head.rows.length) {
      const row = head.insertRow();
      columns.forEach(column => {
        const cell = element("th", column.startsWith("#") ? "number" : "", column.replace("#", ""));
        cell.scope = "col";
        row.append(cell);
      });
    }
    const present = new Map([...body.rows].map(row => [row.dataset.key, row]));
    rows.forEach(({ key, cells, className }, place) => {
      let row = present.get(key);
      present.delete(key);
      if (!row) {
        row = element("tr");
        row.dataset.key = key;
        cells.forEach((cell, at) => {
          const made = element(at === 0 ? "th" : "td", columns[at].startsWith("#") ? "number" : "");
          if (at === 0) made.scope = "row";
          row.append(made);
        });
      }
      row.className = className || "";
      if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] || null);
      cells.forEach((cell, at) => {
        const [shown, text] = [row.cells[at], typeof cell === "object" ? cell.text : cell];
        const base = columns[at].startsWith("#") ? "number" : "";
        shown.className = (base + " " + (cell.className || (text === "-" ? "none" : ""))).trim();
        if (cell.act) {
          const button = shown.firstElementChild || shown.appendChild(element("button"));
          button.type = "button";
          if (button.textContent !== text) button.textContent = text;
          button.setAttribute("aria-pressed", String(cell.isPressed));
          button.onclick = cell.act;
        } else if (shown.textContent !== text) {
          shown.textContent = text;
        }
      });
    });
    present.forEach(row => row.remove());
    made.parentElement.hidden = !rows.length;
  }

  const or = (value, as) => value == null ? "-" : as(value);

  function volumeRow(name) {
    const sums = lately(name, MINUTE_S), about = name === null ? null : state.volumes[name] || {};
    const all = [state.waiting && state.waiting + " waiting", state.troubled && state.troubled + " not healthy"].filter(Boolean);
    const store = about ? about.state || "-" : all.join(", ") || "up";
    const choose = () => { chosen = name; show(); };
    return {
      key: name === null ? "all" : "volume " + name,
      className: ((name === null ? "sum " : "") + (name === chosen ? "chosen" : "")).trim(),
      cells: [
        { text: name === null ? "All volumes" : name, act: choose, isPressed: name === chosen },
        sums.reads ? percent(sums.read_hits / sums.reads) : "-",
        short.rate(sums.rate("read_requests")), short.rate(sums.rate("write_requests")),
        or(sums.time("read_p99_us"), short.us), or(sums.time("write_p99_us"), short.us),
        or(sums.now("dirty_bytes"), v => v ? short.bytes(v) : "0"),
        or(sums.now("capacity_bytes"), v => v ? short.bytes(sums.now("resident_bytes")) + " of " + short.bytes(v) : "none"),
        { text: store, className: store === "up" ? "words" : "bad" },
      ],
    };
  }

  function volumes() {
    const columns = ["Volume", "#Hit ratio", "#Reads", "#Writes", "#Reads, 99 %", "#Writes, 99 %", "#Dirty", "#Cache filled", "Store"];
    table("volumes", columns, [null, ...state.order].map(volumeRow));
    const hidden = state.volume_count - state.order.length;
    byId("volumes-note").textContent = "The last minute. Choose one to see its curves." + (hidden > 0 ? " " + plural(hidden, "more volume is", "more volumes are") + " in the sum only; undercroft stats lists all." : "");
  }

  function clients() {
    const old = new Map((before ? before.clients : []).map(one => [one.volume + "\n" + one.client, one]));
    const seconds = before ? (state.heard - before.heard) / 1000 : 0;
    const ofChosen = state.clients.filter(one => chosen === null || one.volume === chosen);
    const names = new Map();
    const rows = ofChosen.map(one => {
      const key = one.volume + "\n" + one.client, last = old.get(key);
      // One certificate may have several connections: they cannot be told apart between two states.
      names.set(key, (names.get(key) || 0) + 1);
      const grown = field => last && names.get(key) === 1 && seconds > 0 && one[field] >= last[field] ? (one[field] - last[field]) / seconds : null;
      return { key: key + "\n" + names.get(key), cells: [one.client, { text: one.volume, className: "words" }, or(grown("requests"), short.rate),
        or(grown("bytes_read"), short.flow), or(grown("bytes_written"), short.flow), short.count(one.requests), short.count(one.delayed_requests)] };
    });
    table("clients", ["Client", "Volume", "#Requests", "#Read", "#Written", "#Requests so far", "#Delayed by limits"], rows);
    byId("clients-note").textContent = chosen !== null ? (rows.length ? "The busiest connections of this volume." : "No connections of this volume are among the busiest.") : plural(state.connections, "connection", "connections") + (rows.length < state.connections ? "; the busiest " + rows.length + " are shown." : ".");
  }

  function happened() {
    byId("happened").hidden = !state.events.length;
    table("events", ["Time", "Kind", "Volume", "What", "Who"], state.events.filter(one => chosen === null || one.volume === chosen).map((one, at) => ({
      key: one.time_ms + "\n" + one.kind + "\n" + (one.volume || "") + "\n" + one.text + "\n" + at,
      cells: [new Date(one.time_ms).toLocaleString(), { text: one.kind, className: one.level === "error" ? "bad" : "words" }, { text: one.volume || "-", className: "words" }, { text: one.text, className: "words" }, { text: one.who || "-", className: "words" }],
    })));
  }

  function held() {
    const known = state.order.filter(name => (chosen === null || name === chosen) && state.volumes[name] && state.volumes[name].known);
    const caches = state.caches.filter(one => chosen === null || one.volume === chosen);
    byId("held").hidden = !known.length && !caches.length;
    const share = (part, all) => all ? percent(part / all) : "-";
    table("known", ["Volume", "#Evictions told", "#Late", "#Read again since", "#Held by others", "#Contents taken", "#Refused", "#Believed held", "#False positives"], known.map(name => {
      const of = state.volumes[name].known, block = state.volumes[name].block_bytes;
      return { key: name, cells: [name, short.count(of.told_evictions), share(of.late, of.told_evictions), share(of.stale, of.told_evictions), short.count(of.held_by_others),
        short.count(of.contents_taken), short.count(of.contents_refused), of.believed_blocks ? short.bytes(of.believed_blocks * block) : "-", of.summaries ? percent(of.false_positives_ppm / 1e6) : "-"] };
    }));
    byId("caches").closest("figure").hidden = !caches.length;
    byId("known").closest("figure").hidden = !known.length;
    table("caches", ["Client", "Volume", "Tells evictions", "Policy", "#Size", "#Hit ratio", "#Late", "#Precision", "#Recall"], caches.map((one, at) => {
      const block = (state.volumes[one.volume] || {}).block_bytes || 0, tracked = one.tracking || {};
      return { key: one.volume + "\n" + one.client + "\n" + at, cells: [one.client, { text: one.volume, className: "words" }, one.tells_evictions ? "yes" : "no", or(one.policy, v => v),
        or(one.capacity_blocks, v => short.bytes(v * block)), one.reads && !one.tracking ? percent(one.read_hits / one.reads) : "-",
        tracked.late_evictions == null ? "-" : share(tracked.late_evictions, tracked.late_evictions + (one.evictions || 0)), or(tracked.precision, percent), or(tracked.recall, percent)] };
    }));
  }

  // ---- Curves ----
  const value = field => row => row[fields[field]];
  const perSecond = field => row => row[fields[field]] / row.s;
  const ofReads = amount => row => row[fields.reads] ? Math.max(0, amount(row)) / row[fields.reads] : null;
  const several = names => row => sumOf(names, name => row[fields[name]]);
  const told = several(EVICTED_HITS);
  const plots = [];
  function draw() {
    if (!plots.length) {
      const add = chart => plots.push(charts.overTime(byId("charts"), chart));
      add({ title: "Where the blocks read came from", note: "Share of the blocks that clients read. Cache: it had them at once, by its own choice. Waited for: being fetched or written already. The next three: evicted by clients, and placed here. Flash: from there, not from the store.",
        unit: "share", stacked: true, series: [
          { name: "cache", hue: 0, of: ofReads(row => row[fields.read_hits] - row[fields.joined_reads] - told(row)) },
          { name: "waited for", hue: 5, of: ofReads(row => Math.min(row[fields.joined_reads], row[fields.read_hits] - told(row))) },
          { name: "handed over", hue: 2, of: ofReads(several(HANDED_OVER)) }, { name: "reloaded", hue: 3, of: ofReads(several(RELOADED)) },
          { name: "staged", hue: 4, of: ofReads(several(STAGED)) }, { name: "flash", hue: 6, of: ofReads(value(FLASH_HITS)) },
          { name: "miss", hue: null, of: ofReads(row => row[fields.reads] - row[fields.read_hits] - row[fields[FLASH_HITS]]) },
        ] });
      add({ title: "Response times", note: "From a request's arrival to its answer; a logarithmic scale.", unit: "us", log: true, series: [
        { name: "hit, 99 %", hue: 0, of: value("read_hit_p99_us") }, { name: "miss, median", hue: 3, of: value("read_miss_p50_us") }, { name: "miss, 99 %", hue: 1, of: value("read_miss_p99_us") },
        { name: "write, 99 %", hue: 2, of: value("write_p99_us") }, { name: "flush, 99 %", hue: 4, of: value("flush_p99_us") } ] });
      add({ title: "Throughput", note: "Bytes a second, in whole blocks: what clients ask, what is left for the stores, and what is written to flash.", unit: "flow", series: [
        { name: "clients read", hue: 0, fill: true, of: perSecond("read_bytes") }, { name: "clients write", hue: 2, of: perSecond("written_bytes") },
        { name: "stores read", hue: 3, of: perSecond("store_read_bytes") }, { name: "stores write", hue: 4, of: perSecond("store_written_bytes") },
        { name: "to flash", hue: 6, of: perSecond(FLASH_WRITTEN) } ] });
      add({ title: "Requests", note: "A second.", unit: "rate", series: [
        { name: "reads", hue: 0, of: perSecond("read_requests") }, { name: "writes", hue: 2, of: perSecond("write_requests") }, { name: "flushes", hue: 4, of: perSecond("flush_requests") },
        { name: "evictions told", hue: 3, of: row => several(TOLD)(row) / row.s }, { name: "of them too late", hue: 1, of: row => several(TOO_LATE)(row) / row.s } ] });
      add({ title: "What waits", note: "Blocks with an operation in progress, blocks to be read back, blocks that wait for memory.", unit: "count", series: [
        { name: "in progress", hue: 0, fill: true, of: value("in_progress") }, { name: "to be read back", hue: 3, of: value("cooperation.reloads_waiting") }, { name: "wait for memory", hue: 1, of: value("starved") } ] });
      add({ title: "Write-back", note: "What the stores do not have yet: in memory, and in write logs.", unit: "bytes", series: [
        { name: "dirty", hue: 3, fill: true, of: value("dirty_bytes") }, { name: "in the log", hue: 6, of: value("log.used_bytes") } ] });
    }
    const of = sample => chosen === null ? sample.all : sample.by[chosen];
    const rows = samples.map(sample => of(sample) && Object.assign(of(sample), { s: sample.s }));
    const times = samples.map(sample => sample.t / 1000);
    const last = times.at(-1) || 0;
    plots.forEach(plot => plot.draw(times, rows, Math.max(times[0] || 0, last - keepsS)));
    const sums = lately(chosen, MINUTE_S);
    plots[5].note("Changes that stores do not have yet. The oldest is " + duration(sums.now("dirty_age_s") || 0) + " old." + (sums.bounded_writes ? " " + short.rate(sums.rate("bounded_writes")) + " written blocks had to wait for the store." : ""));
    byId("chosen").textContent = chosen === null ? "All volumes" : chosen;
    const about = chosen === null ? null : state.volumes[chosen];
    facts(byId("chosen-facts"), !about || about.state === "away" ? [] : [short.bytes(about.size_bytes), "policy " + about.policy, "placement " + about.placement, "write-" + about.write, "blocks of " + short.bytes(about.block_bytes), ...(about.flash ? [short.bytes(about.flash.bytes) + " of flash"] : []), ...(about.trouble ? [about.trouble] : [])]);
  }

  // ---- Advice ----
  let adviceShown = null;
  function advice() {
    const all = advised ? Object.entries(advised.volumes || {}).filter(([, one]) => one && one.state !== "off") : [];
    // Beside others, a volume of which nothing is known yet needs no line.
    const isOne = chosen !== null || all.length === 1;
    const ofChosen = all.filter(([name, one]) => isOne ? chosen === null || name === chosen : isTelling(one));
    byId("advice").hidden = !ofChosen.length;
    const total = chosen === null && advised && advised.total && advised.total.sentences || [];
    const said = total.map(text => ({ text }));
    ofChosen.forEach(([name, one]) => {
      const before = isOne ? "" : name + ": ";
      (one.sentences || []).forEach(text => said.push({ text: before + text }));
      if (ofChosen.length === 1) (one.assumptions || []).forEach(text => said.push({ text, isMore: true }));
    });
    sentences(byId("advice-said"), said);
    const one = ofChosen.length === 1 ? ofChosen[0][1] : null, cells = one && one.cells || [];
    const now = JSON.stringify(cells);
    if (adviceShown && adviceShown.cells === now) return;
    byId("advice-chart").replaceChildren();
    adviceShown = { cells: now, chart: cells.length ? charts.advice(byId("advice-chart"), cells) : null };
  }

  async function askAdvice() {
    if (heardAt && !document.hidden) {
      try {
        const answer = await fetch("advice", { headers: shown(), cache: "no-store" });
        advised = answer.ok ? await answer.json() : null;
      } catch { advised = null; }
      if (state) show();
    }
    setTimeout(askAdvice, ADVICE_MS);
  }

  // ---- All of it ----
  function answer() {
    const sums = lately(null, MINUTE_S);
    const kept = saved(state.saved);
    sentences(byId("answer"), [...health(), cache(sums), ...(kept ? [{ text: kept }] : []), waiting(sums), ...advisable()]);
  }

  function show() {
    isDue = false;
    if (!state || document.hidden || isPaused) return;
    byId("main").hidden = byId("pause").hidden = false;
    byId("server").textContent = location.host;
    facts(byId("facts"), [plural(state.volume_count, "volume", "volumes"), plural(state.connections, "connection", "connections"), "up " + duration(state.uptime_s),
      ...(state.refused_connections ? [plural(state.refused_connections, "connection was", "connections were") + " refused"] : [])]);
    const sums = lately(null, MINUTE_S);
    answer();
    volumes();
    draw();
    advice();
    clients();
    happened();
    held();
    document.title = (isLost ? "? " : state.troubled || state.waiting ? "! " : "") + (sums.reads ? percent(sums.read_hits / sums.reads) + " hits, " : "") + location.host + " - Undercroft";
  }

  // ---- The connection ----
  const shown = () => ({ "X-Undercroft-Viewer": "page", ...(token ? { Authorization: "Bearer " + token } : {}) });
  let isQuiet = null;
  function link(text, kind) {
    const place = byId("link");
    if (place.textContent !== text) place.textContent = text;
    place.className = kind;
    document.body.classList.toggle("stale", kind === "lost");
    if (isLost === (kind === "lost")) return;
    isLost = kind === "lost";
    // Also while the page is paused.
    if (state && isLost) answer();
    if (state) show();
  }

  async function read(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heardAt = performance.now();
      rest += value;
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const text of events) {
        const [name, data] = text.split("\n");
        take(name.slice("event: ".length), JSON.parse(data.slice("data: ".length)));
      }
      link("Live, every 2 s", "live");
    }
  }

  async function connect() {
    for (let tries = 0; ; tries += 1) {
      const stop = new AbortController();
      let why = "the server does not answer";
      isQuiet = () => stop.abort();
      try {
        heardAt = performance.now();
        const answer = await fetch("events", { headers: shown(), cache: "no-store", signal: stop.signal });
        if (answer.status === 401) return ask(token !== null);
        if (answer.ok) {
          if (token) sessionStorage.setItem("token", token);
          byId("door").hidden = true;
          tries = 0;
          await read(answer);
          why = "the connection ended";
        } else {
          why = answer.status === 503 ? "as many viewers as the server allows are here" : "HTTP " + answer.status;
        }
      } catch (error) {
        if (error.name === "AbortError") why = "nothing was heard for " + QUIET_MS / 1000 + " s";
      }
      const pause = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)];
      const since = state ? " These are the figures of " + figuresOf() + "." : "";
      link("Lost: " + why + "; trying again." + since, "lost");
      await new Promise(resolve => setTimeout(resolve, pause));
    }
  }

  function ask(isWrong) {
    token = null;
    sessionStorage.removeItem("token");
    link("The server wants a token", "");
    byId("main").hidden = true;
    byId("door").hidden = false;
    byId("door-why").classList.toggle("wrong", isWrong);
    if (isWrong) byId("door-why").textContent = "The server does not take this token. It must be what is in its http-token-file.";
    byId("token").value = "";
    byId("token").focus();
  }

  byId("door").addEventListener("submit", event => {
    event.preventDefault();
    token = byId("token").value.trim();
    link("Connecting", "");
    connect();
  });
  byId("pause").addEventListener("click", () => {
    isPaused = !isPaused;
    byId("pause").setAttribute("aria-pressed", String(isPaused));
    byId("pause").textContent = isPaused ? "Go on" : "Pause";
    show();
  });
  document.addEventListener("visibilitychange", show);
  charts.onScheme(() => {
    plots.forEach(plot => plot.build());
    if (adviceShown && adviceShown.chart) adviceShown.chart.build();
    if (state) draw();
  });
  setInterval(() => { if (isQuiet && heardAt && performance.now() - heardAt > QUIET_MS) isQuiet(); }, 1000);

  // A token after # is not sent by the browser, and does not stay in the address.
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", location.pathname + location.search);
  token = given || sessionStorage.getItem("token");
  connect();
  askAdvice();
})();
