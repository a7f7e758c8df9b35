// The search for nodes by their names, their operators, and the values that they give.
"use strict";

(() => {
  const input = document.getElementById("find");
  if (!input) return;
  const list = document.getElementById("found");
  const MOST = 30;
  const texts = nodes.map((node) => [node.name, node.operator, ...node.results].join(" ").toLowerCase());
  let chosen = -1;

  function choose(index) {
    chosen = index;
    [...list.children].forEach((item, i) => {
      item.setAttribute("aria-selected", String(i === index));
      if (i === index) {
        input.setAttribute("aria-activedescendant", item.id);
        item.scrollIntoView({ block: "nearest" });
      }
    });
  }

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    chosen = -1;
  }

  function search() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = [];
    for (let i = 0; words.length && i < nodes.length && fitting.length < MOST; i += 1) {
      if (words.every((word) => texts[i].includes(word))) fitting.push(i);
    }
    const items = fitting.map((number) => {
      const item = document.createElement("li");
      const kind = document.createElement("small");
      kind.textContent = ` ${nodes[number].operator}, ${nodes[number].precision}`;
      item.append(nodes[number].name, kind);
      item.id = `found${number}`;
      item.setAttribute("role", "option");
      item.dataset.number = number;
      return item;
    });
    list.replaceChildren(...items);
    list.hidden = !items.length;
    input.setAttribute("aria-expanded", String(Boolean(items.length)));
    choose(items.length ? 0 : -1);
  }

  function go(item) {
    if (!item) return;
    close();
    panel.open(Number(item.dataset.number));
  }

  input.addEventListener("input", search);
  input.addEventListener("focus", () => input.value && search());
  input.addEventListener("blur", () => setTimeout(close, 150)); // a click on the list comes first
  input.addEventListener("keydown", (event) => {
    const count = list.children.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (count) choose((chosen + (event.key === "ArrowDown" ? 1 : count - 1)) % count);
    } else if (event.key === "Enter") {
      go(list.children[chosen]);
    } else if (event.key === "Escape") {
      close();
    }
  });
  list.addEventListener("mousedown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => go(event.target.closest("li")));
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      input.focus();
    }
  });
})();
