// The panel of a node: facts, histograms of its values, its weights by channel, the nodes around it.
"use strict";

const nodes = JSON.parse(document.getElementById("nodes")?.textContent || "[]");

const panel = (() => {
  const place = document.getElementById("panel");
  const SVG = "http://www.w3.org/2000/svg";
  const listeners = [];
  let opener = null;

  /** An element with attributes and children; text is never read as markup. */
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function shape(name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  /** Ranges of channels as bars, and their scales as a line over them, each in its own unit. */
  function channelPlot(plot) {
    const width = 420, height = 90;
    const top = Math.max(...plot.high, 0), bottom = Math.min(...plot.low, 0);
    const span = top - bottom || 1, step = width / plot.low.length;
    const largest = Math.max(...plot.scale);
    const y = (value) => ((top - value) / span) * height;
    const drawing = shape("svg", { class: "channels", viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img" });
    drawing.append(shape("title", {}));
    drawing.firstChild.textContent = `${plot.name} by channel`;
    plot.low.forEach((low, index) => {
      const x = (index + 0.5) * step;
      const line = { class: "range", x1: x, x2: x, y1: y(plot.high[index]), y2: y(low) + 0.5, "stroke-width": Math.max(step * 0.7, 0.5) };
      drawing.append(shape("line", line));
    });
    drawing.append(shape("line", { class: "zero", x1: 0, x2: width, y1: y(0), y2: y(0) }));
    const way = plot.scale.map((scale, index) => `${((index + 0.5) * step).toFixed(1)},${(height * (1 - scale / largest)).toFixed(1)}`);
    drawing.append(shape("polyline", { class: "scale", points: way.join(" ") }));
    const caption =
      `${plot.name}: ${plot.channels} channels; bars reach from ${bottom.toPrecision(3)} to ${top.toPrecision(3)}, ` +
      `the line is the scale, up to ${largest.toPrecision(3)}`;
    return element("figure", {}, drawing, element("figcaption", {}, caption));
  }

  function links(title, numbers) {
    if (!numbers.length) return [];
    const items = numbers.map((number) => {
      const button = element("button", { type: "button", class: "reference", "data-node": number }, nodes[number].name);
      return element("li", {}, button, ` ${nodes[number].operator}`);
    });
    return [element("h3", {}, title), element("ul", {}, ...items)];
  }

  function histograms(numbers) {
    const pictures = numbers
      .map((number) => document.querySelector(`.gallery figure[data-picture="${number}"]`))
      .filter(Boolean)
      .map((picture) => picture.cloneNode(true));
    return pictures.length ? [element("h3", {}, "Values over the calibration data"), ...pictures] : [];
  }

  function open(number) {
    const node = nodes[number];
    if (!node) return;
    if (place.hidden) opener = document.activeElement;
    const close = element("button", { type: "button", "aria-label": "Close the panel" }, "✕");
    close.addEventListener("click", shut);
    const facts = element("dl");
    for (const [name, text] of node.facts) facts.append(element("dt", {}, name), element("dd", {}, text));
    const badge = element("span", { class: `badge p-${node.colour}` }, node.precision);
    const show = element("button", { type: "button", class: "show" }, "Show in the graph");
    show.addEventListener("click", () => listeners.forEach((listen) => listen(number, true)));
    place.replaceChildren(
      element("header", {}, element("h2", { tabindex: "-1", id: "panel-title" }, node.name), close),
      element("p", {}, badge, ` ${[node.operator, node.shape].filter(Boolean).join(" · ")}`),
      show,
      facts,
      ...histograms(node.histograms),
      ...(node.weights.length ? [element("h3", {}, "Constants by channel"), ...node.weights.map(channelPlot)] : []),
      ...links("Nodes before", node.sources),
      ...links("Nodes behind", node.targets),
    );
    place.hidden = false;
    place.scrollTop = 0;
    place.querySelector("h2").focus({ preventScroll: true });
    listeners.forEach((listen) => listen(number, false));
  }

  function shut() {
    if (place.hidden) return;
    place.hidden = true;
    listeners.forEach((listen) => listen(null, false));
    opener?.focus({ preventScroll: true });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-node]");
    if (button) open(Number(button.dataset.node));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") shut();
  });
  /** Where the panel begins on the screen: at its right edge while it is shut. */
  const left = () => (place.hidden ? innerWidth : place.getBoundingClientRect().left);
  return { open, shut, left, listen: (listener) => listeners.push(listener) };
})();
