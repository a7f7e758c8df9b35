// The drawing of the graph: zoom, pan, an overview beside it, colours, and boxes that open panels.
"use strict";

(() => {
  const explorer = document.querySelector(".explorer");
  if (!explorer) return;
  const canvas = explorer.querySelector(".canvas");
  const views = [...explorer.querySelectorAll(".graph")];
  const map = explorer.querySelector(".map");
  const seen = map.querySelector(".seen");
  const movement = document.getElementById("movement");
  const MARGIN = 20;
  let view = views[0];
  let eye = { x: 0, y: 0, scale: 1 }; // the corner that is seen, and pixels for a unit of the drawing
  let chosen = null;

  const size = (drawing) => ({ width: Number(drawing.dataset.width), height: Number(drawing.dataset.height) });
  const boxOf = (number) => view.querySelector(`.node[data-node="${number}"]`);

  function draw() {
    const width = view.clientWidth / eye.scale, height = view.clientHeight / eye.scale;
    view.setAttribute("viewBox", `${eye.x} ${eye.y} ${width} ${height}`);
    seen.setAttribute("x", eye.x);
    seen.setAttribute("y", eye.y);
    seen.setAttribute("width", width);
    seen.setAttribute("height", height);
  }

  /** The scale at which all of the drawing is seen. */
  function fitting() {
    const { width, height } = size(view);
    return Math.min(view.clientWidth / (width + 2 * MARGIN), view.clientHeight / (height + 2 * MARGIN), 1.5);
  }

  function fit() {
    const { width, height } = size(view), scale = fitting();
    eye = { x: (width - view.clientWidth / scale) / 2, y: (height - view.clientHeight / scale) / 2, scale };
    draw();
  }

  /** The top of the graph, as large as can be read. */
  function start() {
    const first = view.querySelector(".node").transform.baseVal[0].matrix;
    const scale = Math.max(fitting(), 1);
    eye = { x: first.e + 92 - view.clientWidth / scale / 2, y: -MARGIN, scale };
    draw();
  }

  /** Change the scale; the point of the drawing under (px, py) stays where it is. */
  function zoom(factor, px = view.clientWidth / 2, py = view.clientHeight / 2) {
    const scale = Math.min(Math.max(eye.scale * factor, Math.min(fitting(), 0.1)), 4);
    eye = { x: eye.x + px / eye.scale - px / scale, y: eye.y + py / eye.scale - py / scale, scale };
    draw();
  }

  /** Put a point in the middle of what is seen, which an open panel may cover in part. */
  function centre(x, y) {
    const frame = view.getBoundingClientRect();
    const right = Math.min(frame.right, panel.left());
    const width = right - frame.left > 150 ? right - frame.left : frame.width;
    eye.x = x - width / eye.scale / 2;
    eye.y = y - view.clientHeight / eye.scale / 2;
    draw();
  }

  /** Bring a node into view, with data movement shown if it is that. */
  function show(number) {
    if (!boxOf(number) && movement) {
      movement.checked = true;
      select();
    }
    const at = boxOf(number)?.transform.baseVal[0].matrix;
    if (!at) return;
    eye.scale = Math.max(eye.scale, 0.8);
    centre(at.e + 92, at.f + 25);
  }

  /** Choose the view with or without data movement. */
  function select() {
    view = movement?.checked ? views[views.length - 1] : views[0];
    views.forEach((one) => one.toggleAttribute("hidden", one !== view));
    const { width, height } = size(view);
    map.querySelector("use").setAttribute("href", `#world-${view.dataset.view}`);
    map.setAttribute("viewBox", `${-MARGIN} ${-MARGIN} ${width + 2 * MARGIN} ${height + 2 * MARGIN}`);
    mark(chosen);
    start();
  }

  function mark(number) {
    explorer.querySelectorAll(".chosen").forEach((box) => box.classList.remove("chosen"));
    chosen = number;
    if (number !== null) boxOf(number)?.classList.add("chosen");
  }

  /** Move the keyboard's focus to a node, which alone can then be reached by Tab. */
  function focus(number) {
    const box = boxOf(number);
    if (!box) return;
    view.querySelectorAll('.node[tabindex="0"]').forEach((one) => one.setAttribute("tabindex", "-1"));
    box.setAttribute("tabindex", "0");
    show(number);
    box.focus({ preventScroll: true });
  }

  /** The drawn nodes before or behind a node, the nearest in the order of the graph first. */
  function around(number, side) {
    const drawn = [], queue = [...nodes[number][side]], met = new Set(queue);
    while (queue.length) {
      const next = queue.shift();
      if (boxOf(next)) {
        drawn.push(next);
      } else {
        nodes[next][side].filter((one) => !met.has(one)).forEach((one) => queue.push(one) && met.add(one));
      }
    }
    return drawn.sort((a, b) => Math.abs(a - number) - Math.abs(b - number));
  }

  function pressed(event) {
    const box = event.target.closest(".node");
    const number = box ? Number(box.dataset.node) : null;
    const step = 60 / eye.scale;
    const pan = { ArrowUp: [0, -step], ArrowDown: [0, step], ArrowLeft: [-step, 0], ArrowRight: [step, 0] }[event.key];
    if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else if (box && (event.key === "Enter" || event.key === " ")) panel.open(number);
    else if (box && event.key === "ArrowUp") focus(around(number, "sources")[0] ?? number);
    else if (box && event.key === "ArrowDown") focus(around(number, "targets")[0] ?? number);
    else if (box && event.key.startsWith("Arrow")) {
      const order = [...view.querySelectorAll(".node")];
      focus(Number((order[order.indexOf(box) + (event.key === "ArrowRight" ? 1 : -1)] ?? box).dataset.node));
    } else if (pan) {
      eye.x += pan[0];
      eye.y += pan[1];
      draw();
    } else return;
    event.preventDefault();
  }

  function grab(event) {
    if (event.button !== 0) return;
    const from = { x: event.clientX, y: event.clientY, eye: { ...eye } }, held = view;
    let dragged = false;

    function move(now) {
      const dx = now.clientX - from.x, dy = now.clientY - from.y;
      if (!dragged && Math.hypot(dx, dy) < 4) return;
      if (!dragged) {
        held.setPointerCapture(event.pointerId);
        held.classList.add("dragged");
      }
      dragged = true;
      eye = { ...eye, x: from.eye.x - dx / eye.scale, y: from.eye.y - dy / eye.scale };
      draw();
    }

    function release(last) {
      held.removeEventListener("pointermove", move);
      held.classList.remove("dragged");
      const box = event.target.closest(".node");
      if (!dragged && box && last.type === "pointerup") panel.open(Number(box.dataset.node));
    }

    held.addEventListener("pointermove", move);
    held.addEventListener("pointerup", release, { once: true });
    held.addEventListener("pointercancel", release, { once: true });
  }

  views.forEach((one) => {
    one.addEventListener("pointerdown", grab);
    one.addEventListener("keydown", pressed);
    one.addEventListener("wheel", (event) => {
      // A wheel alone scrolls the page past the drawing; with Ctrl, as a pinch has it, it zooms.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const frame = one.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
    }, { passive: false });
  });

  function look(event) {
    if (event.buttons !== 1) return;
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    centre(point.x, point.y);
  }

  map.addEventListener("pointerdown", look);
  map.addEventListener("pointermove", look);
  const actions = { in: () => zoom(1.25), out: () => zoom(0.8), fit, start };
  explorer.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", actions[button.dataset.zoom]));
  document.getElementById("colour").addEventListener("change", (event) => {
    // The overview shows copies of the groups, which know only classes inside of them.
    for (const part of [explorer, ...explorer.querySelectorAll(".graph > g")]) {
      for (const by of ["error", "region"]) part.classList.toggle(`by-${by}`, event.target.value === by);
    }
  });
  movement?.addEventListener("change", select);
  new ResizeObserver(draw).observe(canvas);
  panel.listen((number, wanted) => {
    mark(number);
    if (wanted) {
      explorer.scrollIntoView({ block: "center" });
      show(number);
    } else if (number !== null) {
      // For data movement that is folded away, the nearest node that is drawn.
      show(boxOf(number) ? number : (around(number, "sources")[0] ?? around(number, "targets")[0] ?? number));
    }
  });
  select();
})();
