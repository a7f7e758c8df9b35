// The button that goes through the themes: the system's, light, dark.
"use strict";

(() => {
  const button = document.getElementById("theme");
  const themes = ["", "light", "dark"];

  function show(theme) {
    setTheme(theme);
    button.textContent = `Theme: ${theme || "system"}`;
  }

  button.addEventListener("click", () => {
    const current = document.documentElement.dataset.theme || "";
    const next = themes[(themes.indexOf(current) + 1) % themes.length];
    show(next);
    try {
      localStorage.setItem("qglow-theme", next);
    } catch {
      // The choice then holds for this visit only.
    }
  });
  show(keptTheme());
})();
