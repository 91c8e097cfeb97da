// Draws the plots that the page carries. What is where, and what it is called, has been decided before (chart.go).
(() => {
  "use strict";
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const styles = getComputedStyle(document.documentElement);
  const colour = name => styles.getPropertyValue("--" + name).trim();
  const font = "12px system-ui, sans-serif";

  // Ticks whose texts would overlap are left out, the later ones first. Along x it is the texts' lengths that matter.
  const roomy = (ticks, side) => (u, i, min, max) => {
    const half = t => side === 3 ? 10 : 4 * t.text.length + 3;
    let free = -Infinity;
    return ticks.filter(t => {
      const place = side === 3 ? -u.valToPos(t.at, "y") : u.valToPos(t.at, "x");
      if (t.at < min || t.at > max || place - half(t) < free) return false;
      free = place + half(t);
      return true;
    }).map(t => t.at);
  };

  const axis = (a, side) => {
    const names = new Map((a.ticks || []).map(t => [t.at, t.text]));
    const text = at => names.get(at) ?? (+at.toFixed(9)).toLocaleString("en") + (side === 3 ? " " + a.unit : "");
    return {
      label: a.label, labelSize: 22, labelFont: font, font, size: side === 3 ? 58 : 34, side,
      stroke: () => colour("muted"), values: (u, places) => places.map(text),
      grid: { stroke: () => colour("line"), width: 1 }, ticks: { stroke: () => colour("line"), width: 1, size: 5 },
      space: side === 3 ? 34 : 56,
      ...(a.ticks && { splits: roomy(a.ticks, side) }),
    };
  };

  const series = l => ({
    label: l.name, stroke: () => colour(l.style), width: 2, dash: l.dashed ? [6, 4] : undefined,
    points: l.dots ? { show: true, size: 7, fill: () => colour(l.style) } : { show: false },
  });

  // Straight lines above the others: the limit, and where the run itself is.
  const marks = p => u => {
    const { ctx, bbox } = u, ratio = uPlot.pxRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("limit");
    ctx.lineWidth = Math.round(1.5 * ratio);
    const sharp = place => Math.round(place) + ctx.lineWidth % 2 / 2;
    ctx.font = 12 * ratio + "px system-ui, sans-serif";
    ctx.setLineDash([2 * ratio, 2 * ratio]);
    ctx.beginPath();
    if (p.level) {
      const y = sharp(u.valToPos(p.level.at, "y", true));
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
    }
    if (p.here) {
      const x = sharp(u.valToPos(p.here.at, "x", true)), left = x > bbox.left + bbox.width / 2;
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.textAlign = left ? "right" : "left";
      ctx.fillText(p.here.text, x + (left ? -5 : 5) * ratio, bbox.top + 12 * ratio);
    }
    ctx.stroke();
    ctx.restore();
  };

  const valueText = (value, text, unit) => text ?? value.toLocaleString("en", { maximumFractionDigits: 2 }) + " " + unit;

  // Tells the values at the cursor in words below the chart.
  const readout = (p, id) => {
    const out = document.querySelector(`[data-of="${id}"]`);
    return u => {
      const i = u.cursor.idx;
      if (i == null) { out.textContent = ""; return; }
      const told = p.lines.filter(l => l.values[i] != null)
        .map(l => l.name + " " + valueText(l.values[i], l.texts?.[i], p.y.unit));
      out.textContent = valueText(p.at[i], p.atText?.[i], p.x.unit) + ": " + told.join(", ");
    };
  };

  // The arrow keys move the cursor, for those without a mouse.
  const keys = (el, u, p) => el.addEventListener("keydown", e => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const i = Math.min(p.at.length - 1, Math.max(0, (u.cursor.idx ?? (step > 0 ? -1 : p.at.length)) + step));
    u.setCursor({ left: u.valToPos(p.at[i], "x"), top: u.over.clientHeight / 2 });
  });

  const draw = (id, p) => {
    const el = document.getElementById(id);
    const u = new uPlot({
      width: el.clientWidth, height: el.clientHeight, legend: { show: false }, padding: [10, 22, 0, 0],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 8 } },
      scales: { x: { time: false, range: () => [p.x.min, p.x.max] }, y: { range: () => [p.y.min, p.y.max] } },
      axes: [axis(p.x, 2), axis(p.y, 3)], series: [{}, ...p.lines.map(series)],
      hooks: { draw: [marks(p), () => { el.dataset.drawn = "true"; }], setCursor: [readout(p, id)] },
    }, [p.at, ...p.lines.map(l => l.values)], el);
    keys(el, u, p);
    new ResizeObserver(() => u.setSize({ width: el.clientWidth, height: el.clientHeight })).observe(el);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => u.redraw(false));
  };

  for (const [id, p] of Object.entries(plots)) draw(id, p);
})();
