"use strict";
(() => {
  const plots = JSON.parse(document.getElementById("contents").textContent);
  const tip = document.getElementById("tip");

  /* ---------------------------------------------------------------- elements */

  const make = (name, attributes = {}, text = null) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    return node;
  };
  const draw = (parent, name, attributes = {}, text = null) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    parent.appendChild(node);
    return node;
  };
  const shorten = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

  /* ---------------------------------------------------------------- tooltip */

  const showTip = (x, y, title, rows) => {
    tip.replaceChildren(make("strong", {}, title));
    for (const [color, name, text] of rows) {
      const row = make("div", { class: "row" });
      if (color !== null) row.appendChild(make("span", { class: `swatch f${color}` }));
      row.append(make("span", {}, name), make("span", {}, text));
      tip.appendChild(row);
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
    tip.style.left = `${Math.max(6, Math.min(left, innerWidth - box.width - 6))}px`;
    tip.style.top = `${Math.max(6, Math.min(y - box.height / 2, innerHeight - box.height - 6))}px`;
  };
  const hideTip = () => { tip.hidden = true; };

  /* ---------------------------------------------------------------- axes */

  const raised = (power) => "10" + String(power).replace(/./g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[+c]));
  const short = (value) => String(+value.toPrecision(4)).replace(/^-/, "−");
  const tickText = (value, log) => {
    if (!log) return short(value);
    const power = Math.round(Math.log10(value));
    return Math.abs(value / 10 ** power - 1) > 1e-9 || (power > -3 && power < 4) ? short(value) : raised(power);
  };
  const linearTicks = (low, high, count) => {
    const rough = (high - low) / Math.max(count, 1) || 1;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((m) => m * unit >= rough * 0.999);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
    return ticks;
  };
  const logTicks = (low, high, count) => {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    const stride = Math.max(1, Math.ceil((last - first) / count));
    const ticks = [];
    for (let power = last; power >= first; power -= stride) ticks.push(10 ** power);
    if (ticks.length > 1) return ticks;
    return [1, 2, 5, 10, 20, 50].map((m) => m * 10 ** Math.floor(Math.log10(low))).filter((v) => v >= low * 0.999 && v <= high * 1.001);
  };
  /* Linear on both sides of zero, with the side after zero stretched to more than its share. */
  const splitScale = (axis, values, from, to, count) => {
    const low = Math.min(...values), high = Math.max(...values);
    if (low >= 0 || high <= 0) return scaleOf({ ...axis, kind: "linear" }, values, from, to, count);
    const zero = from + axis.share * (to - from);
    const ticks = [...linearTicks(low, 0, count / 2).filter((v) => v < 0), ...linearTicks(0, high, count / 2)];
    return { log: false, low, high, ticks, at: (v) => (v < 0 ? zero - (v / low) * (zero - from) : zero + (v / high) * (to - zero)) };
  };
  /* A scale has at(value) -> pixel, ticks and log; values below the floor of a logarithmic one lie on its edge. */
  const scaleOf = (axis, values, from, to, count) => {
    if (axis.kind === "split") return splitScale(axis, values, from, to, count);
    const log = axis.kind === "log";
    let seen = values.filter((v) => v !== null && (!log || v > 0));
    if (!seen.length) seen = [1];
    let low = Math.min(...seen), high = Math.max(...seen);
    if (log) {
      if (axis.floor) low = Math.max(low, axis.floor);
      high = Math.max(axis.most || 0, high);
      if (axis.floor) low = Math.min(10 ** Math.floor(Math.log10(low)), high / 10);
      if (high === low) { high *= 3; low /= 3; }
    } else {
      if (axis.least !== undefined) low = Math.min(low, axis.least);
      if (axis.most !== undefined) high = Math.max(high, axis.most);
      if (high === low) { high += 1; low -= axis.least === undefined ? 1 : 0; }
    }
    const put = log ? (v) => Math.log10(Math.max(v, low)) : (v) => v;
    const a = put(low), b = put(high);
    return {
      log, low, high,
      at: (v) => from + ((put(v) - a) / (b - a)) * (to - from),
      ticks: log ? logTicks(low, high, count) : linearTicks(low, high, count),
    };
  };

  /* ---------------------------------------------------------------- lines */

  /* Lines are told apart by color, by dashes and by the shape of their points: also in print, and where they coincide. */
  const shapes = {
    circle: (x, y, r) => `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0Z`,
    square: (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
    diamond: (x, y, r) => `M${x},${y - 1.3 * r}L${x + 1.3 * r},${y}L${x},${y + 1.3 * r}L${x - 1.3 * r},${y}Z`,
    up: (x, y, r) => `M${x},${y - 1.2 * r}L${x + 1.2 * r},${y + r}L${x - 1.2 * r},${y + r}Z`,
    down: (x, y, r) => `M${x},${y + 1.2 * r}L${x + 1.2 * r},${y - r}L${x - 1.2 * r},${y - r}Z`,
    cross: (x, y, r) => `M${x - r},${y - r / 3}h${r / 1.5}v${-r / 1.5}h${r / 1.5}v${r / 1.5}h${r / 1.5}v${r / 1.5}h${-r / 1.5}v${r / 1.5}h${-r / 1.5}v${-r / 1.5}h${-r / 1.5}Z`,
  };
  const looks = [["circle", "none"], ["square", "7 4"], ["diamond", "2 4"], ["up", "9 3 2 3"], ["cross", "4 3"], ["down", "12 4"]];
  const lookOf = (plot, series) => {
    const [shape, dash] = looks[plot.series.indexOf(series) % looks.length];
    /* Later ones are smaller and lie on top: of those that coincide each is seen. */
    const place = series.thick ? 0 : Math.min(plot.series.indexOf(series), 4), many = series.points.length > 24;
    return {
      shape: shapes[shape], dash: series.thick || many ? "none" : series.dash ? "6 5" : dash,
      size: series.large ? 8 : [6.5, 5, 3.8, 3, 2.6][place], width: many ? 1.5 : [4, 3, 2.2, 1.6, 1.3][place],
    };
  };

  const drawLines = (holder, plot, hidden) => {
    const width = Math.max(holder.clientWidth, 240), height = width < 520 ? 270 : 350;
    const shown = plot.series.filter((s) => !hidden.has(s.name));
    const basis = shown.length ? shown : plot.series;
    const ys = basis.flatMap((s) => [...s.points.map((p) => p[1]), ...(s.band || []).flatMap((b) => [b[1], b[2]])]);
    const xs = basis.flatMap((s) => s.points.map((p) => p[0]));
    const top = plot.marks && plot.marks.length ? 24 : 12, bottom = height - 46;
    const y = scaleOf(plot.y, plot.y.kind === "log" ? ys : [0, ...ys], bottom, top, height < 300 ? 4 : 6);
    const left = 16 + 7.4 * Math.max(...y.ticks.map((v) => tickText(v, y.log).length), 2) + 16, right = width - 14;
    const x = scaleOf(plot.x, xs, left, right, width < 520 ? 4 : 8);
    const svg = draw(holder, "svg", {
      viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: "0",
      "aria-label": `${plot.name}: ${plot.y.label} against ${plot.x.label}. Arrow keys read the points; the numbers follow as a table.`,
    });
    for (const value of y.ticks) {
      draw(svg, "line", { class: "grid", x1: left, x2: right, y1: y.at(value), y2: y.at(value) });
      draw(svg, "text", { x: left - 8, y: y.at(value) + 4, "text-anchor": "end" }, tickText(value, y.log));
    }
    for (const value of x.ticks) {
      draw(svg, "line", { class: "base", x1: x.at(value), x2: x.at(value), y1: bottom, y2: bottom + 5 });
      draw(svg, "text", { x: x.at(value), y: bottom + 19, "text-anchor": "middle" }, tickText(value, x.log));
    }
    draw(svg, "line", { class: "base", x1: left, x2: right, y1: bottom, y2: bottom });
    draw(svg, "text", { class: "axis", x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, plot.x.label);
    draw(svg, "text", { class: "axis", transform: `translate(13 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, plot.y.label);
    for (const [value, text] of plot.marks || []) {
      const at = x.at(value), late = at > (left + right) / 2;
      draw(svg, "line", { class: "mark", x1: at, x2: at, y1: top - 4, y2: bottom });
      draw(svg, "text", { x: at + (late ? -6 : 6), y: top - 6, "text-anchor": late ? "end" : "start" }, text);
    }
    /* The thick one first, so that what coincides with it is seen on top of it. */
    for (const series of [...shown].sort((a, b) => (b.thick ? 1 : 0) - (a.thick ? 1 : 0))) {
      if (series.band && series.band.length) {
        const upper = series.band.map((b) => `${x.at(b[0])},${y.at(b[2])}`), lower = series.band.map((b) => `${x.at(b[0])},${y.at(b[1])}`);
        draw(svg, "polygon", { class: `band f${series.color}`, points: [...upper, ...lower.reverse()].join(" ") });
      }
      const known = series.points.filter((p) => p[1] !== null), below = (p) => y.log && p[1] < y.low;
      const look = lookOf(plot, series);
      if (!series.dots) {
        let path = "", pen = "M";
        for (const p of series.points) {
          if (p[1] === null) { pen = "M"; continue; }
          const at = x.at(p[0]).toFixed(2);
          /* What holds at a point holds after it: level up to the next one. A value below the axis is not drawn to. */
          if (series.step && pen === "L") path += `H${at}`;
          if (below(p)) { pen = "M"; continue; }
          path += series.step && pen === "L" ? `V${y.at(p[1]).toFixed(2)}` : `${pen}${at},${y.at(p[1]).toFixed(2)}`;
          pen = "L";
        }
        draw(svg, "path", { class: `curve s${series.color}`, d: path, "stroke-width": look.width, "stroke-dasharray": look.dash, "data-series": series.name });
      }
      if (series.dots || known.length <= 24) {
        for (const p of known) {
          const under = below(p);
          draw(svg, "path", {
            class: under ? `dot hollow s${series.color}` : `dot f${series.color}`, "data-series": series.name,
            d: (under ? shapes.down : look.shape)(x.at(p[0]), under ? bottom - look.size : y.at(p[1]), look.size),
          });
        }
      }
    }

    const stops = [...new Set(shown.flatMap((s) => s.points.filter((p) => p[1] !== null).map((p) => p[0])))].sort((a, b) => a - b);
    const guide = draw(svg, "g");
    let current = -1;
    const point = (index) => {
      if (index < 0 || index >= stops.length) return;
      current = index;
      guide.replaceChildren();
      const value = stops[index], at = x.at(value), rows = [];
      draw(guide, "line", { class: "guide", x1: at, x2: at, y1: top, y2: bottom });
      for (const series of shown) {
        const found = series.points.find((p) => p[0] === value && p[1] !== null);
        if (!found) continue;
        draw(guide, "circle", { class: `dot f${series.color}`, cx: at, cy: y.at(found[1]), r: 5 });
        rows.push([series.color, series.name, found[2]]);
      }
      const box = svg.getBoundingClientRect(), middle = rows.length ? (top + bottom) / 2 : top;
      showTip(box.left + (at * box.width) / width, box.top + middle, `${plot.x.label.split(",")[0]}: ${short(value)}`, rows);
    };
    const leave = () => { guide.replaceChildren(); current = -1; hideTip(); };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), at = ((event.clientX - box.left) * width) / box.width;
      let best = -1, distance = Infinity;
      stops.forEach((value, i) => { const d = Math.abs(x.at(value) - at); if (d < distance) { distance = d; best = i; } });
      point(best);
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") leave();
      if (!move) return;
      event.preventDefault();
      point(Math.max(0, Math.min(stops.length - 1, current + move)));
    });
  };

  const legend = (plot, hidden, redraw) => {
    const box = make("div", { class: "legend", role: "group", "aria-label": "Show or hide" });
    for (const series of plot.series) {
      const button = make("button", { type: "button", "aria-pressed": String(!hidden.has(series.name)) });
      const look = lookOf(plot, series), key = draw(button, "svg", { class: "key", viewBox: "0 0 30 12", "aria-hidden": "true" });
      if (!series.dots) draw(key, "path", { class: `curve s${series.color}`, d: "M1,6H29", "stroke-width": Math.min(look.width, 3), "stroke-dasharray": look.dash });
      draw(key, "path", { class: `dot f${series.color}`, d: look.shape(15, 6, 4) });
      button.append(make("span", {}, series.name));
      button.addEventListener("click", () => {
        if (!hidden.delete(series.name)) hidden.add(series.name);
        button.setAttribute("aria-pressed", String(!hidden.has(series.name)));
        redraw();
      });
      box.appendChild(button);
    }
    return box;
  };

  /* Lines that have the same numbers, by name: nobody should look for one under another. */
  const coinciding = (plot) => {
    const lines = new Map();
    for (const series of plot.series.filter((s) => s.points.length > 1)) {
      const numbers = JSON.stringify(series.points);
      lines.set(numbers, [...(lines.get(numbers) || []), series.name]);
    }
    return [...lines.values()].filter((names) => names.length > 1).map((names) => `The same numbers: ${names.join(", ")}.`);
  };

  /* ---------------------------------------------------------------- bars and cells */

  const drawBars = (holder, plot) => {
    const box = make("div", { class: "bars", role: "img", "aria-label": `${plot.name}: bars; the numbers follow as a table.` });
    const values = plot.rows.map((row) => row.value);
    const scale = scaleOf({ kind: plot.scale || "linear", floor: plot.floor, least: 0, most: plot.most }, values, 0, 100, 5);
    plot.rows.forEach((row) => {
      const track = make("div", { class: "track" });
      const fill = make("div", { class: `fill f${row.color ?? 0}` });
      fill.style.width = `${row.value === null ? 0 : Math.max(0, Math.min(100, scale.at(row.value)))}%`;
      track.appendChild(fill);
      if (row.low !== undefined) {
        const reach = make("div", { class: "reach" });
        reach.style.left = `${scale.at(row.low)}%`;
        reach.style.width = `${scale.at(row.high) - scale.at(row.low)}%`;
        track.appendChild(reach);
      }
      track.addEventListener("pointermove", (event) => showTip(event.clientX, event.clientY, row.name, [[null, plot.columns[1], row.text]]));
      track.addEventListener("pointerleave", hideTip);
      box.append(make("div", { class: "name" }, row.name), make("div", { class: "text" }, row.text), track);
    });
    holder.appendChild(box);
  };

  const drawHeat = (holder, plot) => {
    const n = plot.names.length, width = Math.max(holder.clientWidth, 240);
    const longest = Math.min(Math.max(...plot.names.map((name) => name.length)), 14);
    const margin = 14 + 7 * longest, size = Math.min((width - margin - 6) / n, n < 8 ? 64 : 46), total = margin + n * size + 4;
    const positive = plot.cells.map((c) => c[2]).filter((v) => v > 0);
    const high = Math.log10(Math.max(...positive, 1e-300)), low = Math.max(Math.min(Math.log10(Math.min(...positive, 1)), high - 0.5), high - 12);
    const depth = (value) => (value > 0 ? 0.08 + 0.92 * Math.max(0, Math.min(1, (Math.log10(value) - low) / (high - low))) : 0.02);
    const svg = draw(holder, "svg", {
      viewBox: `0 0 ${width} ${total}`, height: total, role: "img", tabindex: "0",
      "aria-label": `${plot.name}: ${plot.columns.join(", ")}. Arrow keys read the cells; the numbers follow as a table.`,
    });
    plot.names.forEach((name, i) => {
      const at = margin + (i + 0.5) * size;
      draw(svg, "text", { x: margin - 8, y: at + 4, "text-anchor": "end" }, shorten(name, 14));
      draw(svg, "text", { transform: `translate(${at + 4} ${margin - 8}) rotate(-90)` }, shorten(name, 14));
      draw(svg, "rect", { class: "void", x: margin + i * size, y: margin + i * size, width: size, height: size });
    });
    const chosen = draw(svg, "rect", { class: "chosen", width: size, height: size, visibility: "hidden" });
    let current = -1;
    const point = (index) => {
      const cell = plot.cells[index];
      if (!cell) return;
      current = index;
      const left = margin + cell[1] * size, top = margin + cell[0] * size;
      chosen.setAttribute("x", left); chosen.setAttribute("y", top); chosen.setAttribute("visibility", "visible");
      svg.appendChild(chosen);
      const box = svg.getBoundingClientRect(), unit = box.width / width;
      showTip(box.left + (left + size) * unit, box.top + (top + size / 2) * unit, `${plot.names[cell[0]]} rather than ${plot.names[cell[1]]}`, [[null, plot.columns[2], cell[3]]]);
    };
    const leave = () => { chosen.setAttribute("visibility", "hidden"); current = -1; hideTip(); };
    plot.cells.forEach((cell, index) => {
      const rect = draw(svg, "rect", {
        class: "cell", x: margin + cell[1] * size, y: margin + cell[0] * size, width: size, height: size, "fill-opacity": depth(cell[2]).toFixed(3),
      });
      rect.addEventListener("pointermove", () => point(index));
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") leave();
      if (!move) return;
      event.preventDefault();
      point(Math.max(0, Math.min(plot.cells.length - 1, current + move)));
    });
    const key = make("div", { class: "scale" });
    const ordered = [...plot.cells].sort((a, b) => a[2] - b[2]);
    key.append(make("span", {}, `δ ≤ ${ordered[0][3]}`), make("span", { class: "ramp" }), make("span", {}, `δ ≤ ${ordered[ordered.length - 1][3]}`));
    holder.appendChild(key);
  };

  /* ---------------------------------------------------------------- tables */

  const tableOf = (plot) => {
    if (plot.kind === "bars") return [plot.columns, plot.rows.map((row) => [row.name, row.text])];
    if (plot.kind === "heat") return [plot.columns, plot.cells.map((c) => [plot.names[c[0]], plot.names[c[1]], c[3]])];
    const stops = [...new Set(plot.series.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
    const values = plot.series.map((s) => new Map(s.points.map((p) => [p[0], p[2]])));
    return [[plot.x.label, ...plot.series.map((s) => s.name)], stops.map((x) => [short(x), ...values.map((v) => v.get(x) ?? "")])];
  };
  const drawTable = (holder, plot) => {
    const [columns, rows] = tableOf(plot);
    const table = make("table"), head = make("tr"), body = make("tbody");
    for (const column of columns) head.appendChild(make("th", { scope: "col" }, column));
    for (const row of rows) {
      const line = make("tr");
      for (const cell of row) line.appendChild(make("td", {}, cell));
      body.appendChild(line);
    }
    const top = make("thead");
    top.appendChild(head);
    table.append(top, body);
    holder.replaceChildren(table);
    holder.setAttribute("tabindex", "0");
    holder.setAttribute("role", "region");
    holder.setAttribute("aria-label", `${plot.name}: the numbers`);
  };

  /* ---------------------------------------------------------------- the page */

  const kinds = { lines: drawLines, bars: drawBars, heat: drawHeat };
  const redraws = [];
  for (const figure of document.querySelectorAll("figure[data-plot]")) {
    const choices = plots[figure.dataset.plot], holder = figure.querySelector(".plot"), hidden = new Set();
    let plot = choices[+figure.dataset.number];
    const redraw = () => {
      const keys = holder.querySelector(".legend");
      hideTip();
      holder.replaceChildren();
      kinds[plot.kind](holder, plot, hidden);
      if (keys) holder.appendChild(keys);
    };
    const choose = (next) => {
      plot = next;
      holder.replaceChildren();
      if (plot.kind === "lines" && plot.series.length > 1) {
        const keys = legend(plot, hidden, redraw);
        for (const text of coinciding(plot)) keys.appendChild(make("p", { class: "same" }, text));
        holder.appendChild(keys);
      }
      redraw();
      drawTable(figure.querySelector(".numbers .scroll"), plot);
    };
    const select = document.querySelector(`select[data-pick="${figure.dataset.plot}"]`);
    if (select) {
      choose(choices[+select.value]);
      select.addEventListener("change", () => choose(choices[+select.value]));
    } else choose(plot);
    redraws.push(redraw);
  }

  let width = document.documentElement.clientWidth;
  addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    redraws.forEach((redraw) => redraw());
  });
  addEventListener("scroll", hideTip, { passive: true });

  const theme = document.getElementById("theme"), root = document.documentElement;
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
})();
