// Times in the user's time zone, and live numbers. Pages also work without this script.
(function () {
  "use strict";
  document.querySelectorAll("time").forEach(function (time) {
    var at = new Date(time.dateTime);
    if (isNaN(at)) return;
    var local = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
    if (time.classList.contains("exact")) time.textContent = local;
    time.title = local + " = " + time.title;
  });
  var banner = document.getElementById("unknown");
  var numbers = document.querySelectorAll("[data-number]");
  if (!window.EventSource || !numbers.length) return;
  var silent = null;
  function lost(text) {
    banner.textContent = text + " The numbers on this page are old.";
    banner.hidden = false;
    document.body.classList.add("old");
  }
  function watch() {
    clearTimeout(silent);
    silent = setTimeout(function () { lost("Nothing has been heard for 15 s."); }, 15000);
  }
  function open() {
    var source = new EventSource(document.body.dataset.live);
    source.onmessage = function (event) {
      var said = JSON.parse(event.data);
      watch();
      if (said.unknown) return lost("The database does not answer.");
      var away = said.away || [];
      banner.hidden = !away.length;
      if (away.length) banner.textContent = "Without shard " + away.join(", ") + ", which does not answer.";
      document.body.classList.remove("old");
      numbers.forEach(function (number) {
        var value = said[number.dataset.number];
        if (value !== undefined && value !== number.textContent) number.textContent = value;
      });
    };
    source.onerror = function () {
      lost(source.readyState === 2 ? "Live numbers are refused now." : "trax web does not answer.");
      // The browser does not reopen a stream that was refused.
      if (source.readyState === 2) setTimeout(open, 3000);
    };
  }
  watch();
  open();
})();
