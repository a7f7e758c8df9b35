// Runs before the page is drawn, so that nothing moves or flashes afterwards.
"use strict";

document.documentElement.classList.add("live");

/** The theme that a reader chose before: "light", "dark" or "" for the system's. */
function keptTheme() {
  try {
    return localStorage.getItem("qglow-theme") || "";
  } catch {
    return ""; // a page that may not store anything
  }
}

function setTheme(theme) {
  if (theme === "light" || theme === "dark") {
    document.documentElement.dataset.theme = theme;
  } else {
    delete document.documentElement.dataset.theme;
  }
}

setTheme(keptTheme());
