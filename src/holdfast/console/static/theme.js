// The theme that the reader chose, before the first paint. Without a choice the system's theme is used.
try {
  const theme = localStorage.getItem("holdfast-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage is off: the system's theme is used */ }
