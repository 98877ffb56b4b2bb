// Sets the colours that the user chose before anything is drawn, so that the page never flashes in the others.
// Without a choice the browser's own preference holds. A classic script, because modules wait for the document.
(() => {
  try {
    const chosen = localStorage.getItem('piton.theme');
    if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage is switched off: the browser's preference holds.
  }
})();
