// What there is to see on the page, as the test's type sight.
(() => {
  const rgb = text => text.match(/[\d.]+/g).map(Number);

  // Whether a picture has points of a colour. One may be nearly transparent where a line has soft edges.
  const has = (pixels, [r, g, b]) => {
    let found = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      const near = (at, want) => Math.abs(pixels[at] - want) <= 8;
      if (pixels[i + 3] > 100 && near(i, r) && near(i + 1, g) && near(i + 2, b) && ++found > 40) return true;
    }
    return false;
  };

  // A chart of lines must have each colour of its legend, in a canvas as wide as itself.
  const missingLines = el => {
    const canvas = el.querySelector("canvas");
    if (!canvas || !canvas.width || !canvas.height) return ["canvas"];
    const missing = canvas.clientWidth === el.clientWidth ? [] : ["picture of the chart's own width"];
    // Of a copy: a browser warns of reading a canvas that it keeps on the graphics card.
    const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
    const swatches = el.parentElement.querySelectorAll(".legend .swatch:not([hidden])");
    if (!swatches.length) missing.push("legend");
    for (const swatch of swatches) {
      if (!has(pixels, rgb(getComputedStyle(swatch).borderTopColor))) missing.push(swatch.parentElement.textContent);
    }
    return missing;
  };

  // A chart of bars must have some with a length, within its own box.
  const missingBars = svg => {
    const box = svg.getBoundingClientRect();
    const bars = [...svg.querySelectorAll(".length")].map(bar => bar.getBoundingClientRect());
    const missing = bars.some(bar => bar.width > 1 && bar.height > 1) ? [] : ["bar"];
    if (bars.some(bar => bar.right > box.right + 1)) missing.push("end of a bar");
    return missing;
  };

  return {
    width: document.documentElement.scrollWidth,
    ground: getComputedStyle(document.body).backgroundColor,
    charts: [...document.querySelectorAll("[data-chart]")].map(el => ({
      name: el.id || el.dataset.chart,
      kind: el.dataset.chart,
      drawn: el.dataset.drawn === "true",
      missing: el instanceof SVGElement ? missingBars(el) : missingLines(el),
    })),
  };
})()
