// Before anything is painted: the theme that was chosen, else the system's.
(() => {
  const chosen = localStorage.getItem("streamhouse.theme");
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();

// A browser that was started without a locale may have a language that Intl rejects ("en-US@posix"). The library of the
// plots asks for it when it is loaded, and would leave the page empty.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en" });
}
