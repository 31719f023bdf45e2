// Light or dark: the system's wish, unless the reader has chosen otherwise. Runs before the page is drawn.
"use strict";

(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  let chosen = null;
  try {
    chosen = localStorage.getItem("woolly.theme");
  } catch {
    // a browser that keeps nothing still shows the page
  }

  const dark = () => (chosen === null ? system.matches : chosen === "dark");

  function show() {
    root.dataset.theme = dark() ? "dark" : "light";
    document.getElementById("theme")?.setAttribute("aria-pressed", String(dark()));
  }

  function toggle() {
    const wanted = dark() ? "light" : "dark";
    chosen = (wanted === "dark") === system.matches ? null : wanted; // back to the system's wish: follow it again
    try {
      if (chosen === null) localStorage.removeItem("woolly.theme");
      else localStorage.setItem("woolly.theme", chosen);
    } catch {
      // then it holds until the page is closed
    }
    show();
  }

  show();
  system.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", toggle);
    show();
  });
})();
