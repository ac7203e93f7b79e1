// Times in the user's time zone, live numbers and lists, and the values of charts. Pages also work
// without this script.
(function () {
  "use strict";
  var fresh = document.getElementById("fresh");
  var banner = document.getElementById("unknown");
  var zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  var base = document.body.dataset.base || "/";
  document.cookie = "trax_zone=" + encodeURIComponent(zone) + "; path=" + base + "; max-age=31536000; samesite=strict";

  function local(at) {
    return at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
  }

  // Filters with times are read in the zone that is shown, unless they came with another one.
  var field = document.querySelector("input[data-zone=own]");
  if (field) {
    field.value = zone;
    document.querySelectorAll("label [data-zone]").forEach(function (name) { name.textContent = zone; });
  }

  function dress(part) {
    part.querySelectorAll("time").forEach(function (time) {
      var at = new Date(time.dateTime);
      if (isNaN(at)) return;
      if (time.classList.contains("exact")) time.textContent = local(at);
      time.title = local(at) + " = " + time.title;
    });
    part.querySelectorAll("svg[data-values]").forEach(chart);
    part.querySelectorAll("form.selection").forEach(selection);
  }

  function chart(svg) {
    var values = svg.dataset.values.split("|");
    var since = new Date(svg.dataset.since).getTime();
    var step = 1000 * svg.dataset.step;
    var cursor = svg.querySelector(".cursor");
    var output = svg.parentNode.querySelector("output");
    var place = null;
    function show(next) {
      place = Math.max(0, Math.min(values.length - 1, next));
      cursor.setAttribute("x", 6 * place);
      output.textContent = local(new Date(since + step * place)) + ": " + values[place];
    }
    function hide() {
      place = null;
      cursor.setAttribute("x", -9);
      output.textContent = "";
    }
    svg.addEventListener("pointermove", function (event) {
      var box = svg.getBoundingClientRect();
      show(Math.floor((event.clientX - box.left) / box.width * values.length));
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", function (event) {
      var last = values.length - 1;
      var now = place === null ? values.length : place;
      var next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") return hide();
      if (next === undefined) return;
      event.preventDefault();
      show(next);
    });
  }

  // A box that selects all rows.
  function selection(form) {
    var boxes = form.querySelectorAll("tbody input[type=checkbox]");
    var head = form.querySelector("th");
    if (!boxes.length || !head) return;
    var all = document.createElement("input");
    all.type = "checkbox";
    all.setAttribute("aria-label", "Select all rows");
    all.addEventListener("change", function () {
      boxes.forEach(function (box) { box.checked = all.checked; });
    });
    head.prepend(all, " ");
  }

  function lost(text) {
    banner.textContent = text + " The numbers on this page are old.";
    banner.hidden = false;
    document.body.classList.add("old");
  }
  function found() {
    banner.hidden = true;
    document.body.classList.remove("old");
  }

  // Lists and charts are renewed while nobody points, types, selects or reads text in them.
  function isInUse() {
    var text = String(document.getSelection());
    return document.hidden || text || fresh.contains(document.activeElement) ||
      fresh.querySelector("input:checked, svg:hover, details[open]");
  }
  function renew() {
    var seconds = Number(fresh.dataset.seconds);
    setTimeout(renew, 1000 * seconds);
    if (isInUse()) return;
    fetch(location.href, { redirect: "error" }).then(function (answer) {
      if (!answer.ok) throw answer;
      return answer.text();
    }).then(function (text) {
      var page = new DOMParser().parseFromString(text, "text/html");
      var next = page.getElementById("fresh");
      if (!next || isInUse()) return;
      dress(page);
      document.querySelector(".who").replaceWith(page.querySelector(".who"));
      fresh.replaceChildren.apply(fresh, Array.from(next.childNodes));
      if (!watched) found();
    }).catch(function (error) {
      var status = error.status;
      if (!watched) lost(status ? "The page is refused now: " + status + "." : "trax web does not answer.");
    });
  }

  dress(document);
  var watched = window.EventSource && document.querySelector("[data-number]");
  if (fresh && fresh.dataset.seconds) setTimeout(renew, 1000 * Number(fresh.dataset.seconds));
  if (!watched) return;
  var silent = null;
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
      document.querySelectorAll("[data-number]").forEach(function (number) {
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
