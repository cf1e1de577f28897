"use strict";
(() => {
  const { top_k: topK, palette, tasks } = JSON.parse(document.getElementById("task-data").textContent);
  const STATES = {
    solved: "solved", near: "near miss", wrong: "wrong", none: "no answer", unscored: "not scored",
  };
  const MARKS = {
    solved: '<circle class="solid" cx="8" cy="8" r="6"/><path class="on" d="m5 8 2.2 2.4L11 5.8"/>',
    near: '<circle cx="8" cy="8" r="6"/><path class="solid" d="M8 2a6 6 0 0 1 0 12z"/>',
    wrong: '<path d="m3 3 10 10M13 3 3 13"/>',
    none: '<circle cx="8" cy="8" r="6" stroke-dasharray="2.5 2.2"/>',
    unscored: '<path d="M3 8h10"/>',
  };
  const byId = (id) => document.getElementById(id);
  const [list, article, kSelect, states, search, unseen, digits, count] =
    ["list", "task", "k", "states", "search", "unseen", "digits", "count"].map(byId);
  const numbers = new Map(tasks.map((task, number) => [task.id, number]));
  const view = { k: topK.includes(2) ? 2 : topK[0], state: "all", current: 0 };
  let shown = [];

  const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const mark = (state) =>
    `<svg class="mark ${state}" viewBox="0 0 16 16" aria-hidden="true">${MARKS[state]}</svg>`;
  const parse = (text) => (text === "" ? [] : text.split("/"));
  const size = (rows) => (rows.length ? `${rows.length} × ${rows[0].length}` : "empty");
  const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

  function stateOf(task) {
    const pairs = task.test.filter((pair) => pair.output !== null);
    if (!pairs.length) return "unscored";
    if (pairs.every((pair) => pair.rank !== null && pair.rank <= view.k)) return "solved";
    if (pairs.some((pair) => !pair.candidates.length || pair.candidates[0].grid === "")) return "none";
    return pairs.every((pair) => pair.near) ? "near" : "wrong";
  }

  // Grids ---------------------------------------------------------------------------------------

  function isLight(color) {
    const [r, g, b] = [1, 3, 5].map((i) => (parseInt(color.slice(i, i + 2), 16) / 255) ** 2.2);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18; // where black reads better than white
  }

  function wrongCells(rows, right) {
    const cells = [];
    rows.forEach((row, r) => [...row].forEach((color, c) => {
      if (right[r]?.[c] !== color) cells.push([r, c]);
    }));
    return cells;
  }

  function paint(canvas, rows, cell, wrong = [], withDigits = false) {
    const [height, width] = [rows.length * cell + 1, rows[0].length * cell + 1];
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.fillStyle = "#555555";
    pen.fillRect(0, 0, width, height);
    const gap = cell > 4 ? 1 : 0;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.font = `${Math.round(cell * 0.62)}px sans-serif`;
    rows.forEach((row, r) => [...row].forEach((color, c) => {
      pen.fillStyle = palette[color];
      pen.fillRect(c * cell + gap, r * cell + gap, cell - gap, cell - gap);
      if (withDigits) {
        pen.fillStyle = isLight(palette[color]) ? "#000000" : "#ffffff";
        pen.fillText(color, (c + 0.5) * cell + 0.5, (r + 0.55) * cell + 0.5);
      }
    }));
    // A black line inside a white one stands out on every colour.
    const thick = Math.max(1.3, Math.min(3.5, cell / 6));
    for (const [color, width] of [["#ffffff", thick], ["#000000", thick / 2]]) {
      pen.strokeStyle = color;
      pen.lineWidth = width;
      for (const [r, c] of wrong) {
        const side = cell - thick;
        pen.strokeRect(c * cell + 0.5 + thick / 2, r * cell + 0.5 + thick / 2, side, side);
      }
    }
  }

  function cellSize(rows, room) {
    const side = Math.max(rows.length, rows[0].length);
    // A digit needs some room, also where its grid then needs more than the others.
    return Math.max(digits.checked ? 13 : 5, Math.min(26, Math.floor(room / side)));
  }

  function figure(text, label, caption, { right = null, share = null } = {}) {
    const rows = parse(text);
    const box = document.createElement("figure");
    box.className = "grid";
    if (rows.length) {
      const canvas = document.createElement("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${label}, ${size(rows)}`);
      const room = article.clientWidth < 500 ? 132 : 216;
      const wrong = right === null ? [] : wrongCells(rows, right);
      paint(canvas, rows, cellSize(rows, room), wrong, digits.checked);
      box.append(canvas);
    } else {
      box.insertAdjacentHTML("beforeend", '<div class="empty">empty</div>');
    }
    if (share !== null) {
      box.insertAdjacentHTML(
        "beforeend", `<div class="share"><i style="width:${(100 * share).toFixed(1)}%"></i></div>`);
    }
    box.insertAdjacentHTML("beforeend", `<figcaption>${caption}</figcaption>`);
    return box;
  }

  // The chosen task -----------------------------------------------------------------------------

  function verdict(rows, right) {
    if (right === null) return "";
    if (!rows.length) return `${mark("wrong")} empty grid`;
    if (rows.length !== right.length || rows[0].length !== right[0].length) {
      return `${mark("wrong")} ${size(rows)}, right is ${size(right)}`;
    }
    const wrong = wrongCells(rows, right).length;
    return wrong ? `${mark("wrong")} ${plural(wrong, "cell")} wrong` : `${mark("solved")} right`;
  }

  function candidateFigure(pair, candidate) {
    const text = candidate.grid === "=" ? pair.output : candidate.grid;
    const right = pair.output === null ? null : parse(pair.output);
    const share = pair.votes ? candidate.votes / pair.votes : 0;
    const caption = `<b>${candidate.rank}.</b> ${verdict(parse(text), right)}<br>` +
      `${plural(candidate.votes, "vote")} (${(100 * share).toFixed(0)} %)<br>` +
      `confidence ${candidate.confidence.toFixed(3)}`;
    return figure(text, `Candidate ${candidate.rank}`, caption, { right, share });
  }

  function row(children, name = "row") {
    const box = document.createElement("div");
    box.className = name;
    box.append(...children);
    return box;
  }

  function heading(text) {
    const box = document.createElement("h3");
    box.textContent = text;
    return box;
  }

  function showTask() {
    const task = tasks[view.current];
    const state = stateOf(task);
    const seen = task.test.some((pair) => pair.seen);
    article.replaceChildren();
    article.dataset.task = task.id;
    article.insertAdjacentHTML("beforeend", `<div class="steps ${state}"><b class="mono">` +
      `<a href="#task=${encodeURIComponent(task.id)}">${escape(task.id)}</a></b> <span class="tag">${mark(state)} ${STATES[state]} at K = ${view.k}` +
      `</span>${seen ? ' <span class="tag">test pair seen in training</span>' : ""}</div>`);
    article.append(heading("Demonstrations"), row(task.train.map(([input, output], number) => {
      const box = document.createElement("div");
      box.className = "pair";
      box.append(figure(input, `Demonstration ${number + 1}, input`, ""), "→",
        figure(output, `Demonstration ${number + 1}, output`, ""));
      return box;
    })));
    task.test.forEach((pair, number) => {
      const of = task.test.length > 1 ? ` ${number + 1}` : "";
      const grids = [figure(pair.input, `Test input${of}`, "input")];
      if (pair.output !== null) grids.push(figure(pair.output, `Right output${of}`, "right output"));
      const found = pair.output === null ? "The right output is not known."
        : pair.rank === null ? "The right grid got no vote." : `The right grid is number ${pair.rank}.`;
      article.append(document.createElement("hr"), heading(`Test pair${of}`), row(grids),
        heading("Candidates"));
      article.insertAdjacentHTML("beforeend", `<p class="muted">${plural(pair.votes, "vote")} for ` +
        `${plural(pair.distinct, "distinct grid")}. ${found}</p>`);
      article.append(row(
        pair.candidates.map((candidate) => candidateFigure(pair, candidate)), "row candidates"));
    });
  }

  // The list ------------------------------------------------------------------------------------

  const thumbnails = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      thumbnails.unobserve(target);
      const rows = parse(tasks[Number(target.dataset.number)].test[0].input);
      paint(target, rows, 26 / Math.max(rows.length, rows[0].length));
    }
  }, { root: null, rootMargin: "200px" });

  function refilter() {
    const text = search.value.trim().toLowerCase();
    const pool = [...tasks.keys()].filter((number) =>
      tasks[number].id.toLowerCase().includes(text) &&
      !(unseen.checked && tasks[number].test.some((pair) => pair.seen)));
    const totals = Object.fromEntries(Object.keys(STATES).map((state) => [state, 0]));
    const stateByNumber = new Map(pool.map((number) => [number, stateOf(tasks[number])]));
    for (const state of stateByNumber.values()) totals[state] += 1;
    for (const button of states.children) {
      const { state } = button.dataset;
      const total = state === "all" ? pool.length : totals[state];
      button.setAttribute("aria-pressed", String(state === view.state));
      button.querySelector(".total").textContent = total;
    }
    shown = pool.filter((number) => ["all", stateByNumber.get(number)].includes(view.state));
    thumbnails.disconnect();
    list.innerHTML = shown.map((number) => {
      const [{ id }, state] = [tasks[number], stateByNumber.get(number)];
      return `<li class="${state}"><a href="#task=${encodeURIComponent(id)}" tabindex="-1" ` +
        `data-number="${number}"><canvas data-number="${number}" aria-hidden="true"></canvas>` +
        `<span class="name mono">${escape(id)}</span>${mark(state)}` +
        `<span class="unseen">${STATES[state]}</span></a></li>`;
    }).join("");
    list.querySelectorAll("canvas").forEach((canvas) => thumbnails.observe(canvas));
    if (shown.length && !shown.includes(view.current)) {
      choose(shown[0]);
    } else {
      choose(view.current);
    }
  }

  function choose(number, { focus = false } = {}) {
    view.current = number;
    const place = shown.indexOf(number);
    count.textContent = shown.length
      ? `${place + 1} of ${plural(shown.length, "task")}` : "no task fits the filters";
    byId("previous").disabled = place <= 0;
    byId("next").disabled = place < 0 || place === shown.length - 1;
    list.querySelectorAll('[aria-current="true"]').forEach((link) => {
      link.removeAttribute("aria-current");
      link.tabIndex = -1;
    });
    const link = list.querySelector(`a[data-number="${number}"]`);
    if (link) {
      link.setAttribute("aria-current", "true");
      link.tabIndex = 0;
      if (focus) link.focus({ preventScroll: true });
      // Moves the list only: scrollIntoView would move the page too.
      const box = link.getBoundingClientRect();
      const frame = list.getBoundingClientRect();
      list.scrollTop += Math.min(0, box.top - frame.top) + Math.max(0, box.bottom - frame.bottom);
      list.scrollLeft += Math.min(0, box.left - frame.left) + Math.max(0, box.right - frame.right);
    }
    article.hidden = !shown.length;
    if (shown.length) showTask();
  }

  function go(number, options) {
    choose(number, options);
    history.replaceState(null, "", `#task=${encodeURIComponent(tasks[number].id)}`);
  }

  function step(by) {
    const place = shown.indexOf(view.current) + by;
    if (place >= 0 && place < shown.length) {
      go(shown[place], { focus: list.contains(document.activeElement) });
    }
  }

  function followLink() {
    const id = new URLSearchParams(location.hash.slice(1)).get("task");
    if (id === null) return;
    if (!numbers.has(id)) {
      count.textContent = `no task ${id} on this page`;
      return;
    }
    view.current = numbers.get(id);
    if (!shown.includes(view.current)) {
      view.state = "all";
      search.value = "";
      unseen.checked = false;
      refilter();
    } else {
      choose(view.current);
    }
    const { top } = byId("tasks").getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) byId("tasks").scrollIntoView();
  }

  // Wiring --------------------------------------------------------------------------------------

  kSelect.innerHTML = topK.map((k) => `<option ${k === view.k ? "selected" : ""}>${k}</option>`).join("");
  const hasUnscored = tasks.some((task) => stateOf(task) === "unscored");
  const choices = ["all", ...Object.keys(STATES).filter((s) => s !== "unscored" || hasUnscored)];
  states.innerHTML = choices.map((state) =>
    `<button type="button" data-state="${state}">${state === "all" ? "all" : mark(state)} ` +
    `${state === "all" ? "" : STATES[state]} <span class="total"></span></button>`).join("");
  byId("unseen-label").hidden = !tasks.some((task) => task.test.some((pair) => pair.seen));

  kSelect.addEventListener("change", () => { view.k = Number(kSelect.value); refilter(); });
  states.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) { view.state = button.dataset.state; refilter(); }
  });
  search.addEventListener("input", refilter);
  unseen.addEventListener("change", refilter);
  digits.addEventListener("change", () => choose(view.current));
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  list.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(Number(link.dataset.number), { focus: true });
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === search && event.key === "Escape") {
      search.value = "";
      refilter();
      search.blur();
    }
    if (event.target.closest("select, input:not([type=checkbox])")) return;
    const inList = list.contains(event.target);
    const steps = { ArrowRight: 1, ArrowLeft: -1, ...(inList && { ArrowDown: 1, ArrowUp: -1 }) };
    if (event.key in steps) {
      event.preventDefault();
      step(steps[event.key]);
    } else if (event.key === "/") {
      event.preventDefault();
      search.focus();
    } else if (event.key === "d") {
      digits.checked = !digits.checked;
      choose(view.current);
    }
  });
  addEventListener("hashchange", followLink);
  addEventListener("resize", () => { if (shown.length) showTask(); });

  refilter();
  followLink();
  document.documentElement.dataset.ready = "true";
  performance.mark("ready");
})();
