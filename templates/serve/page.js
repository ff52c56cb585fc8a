// The page to try served models on: the models and their states, an input, and its response.
// Names come from archives: they become text or parts of an address, never markup.

const POLL = 2000; // ms
const SHOWN = 100_000; // characters of a body
const TYPES = { text: "text/plain", json: "application/json" };
const TINY = 96; // pixels: smaller pictures are enlarged as they are
const COMMAND = 4_000; // characters of an input that a command may hold

const at = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

let models = [];
let chosen = null; // the key of a model
let chosenFile = null; // { blob, name, type, url }: url where the server has it, too
let pending = null; // the AbortController of the running request

// --- models ----------------------------------------------------------------------------------------------------------

const keyOf = (model) => JSON.stringify([model.name, model.version]);
const current = () => models.find((model) => keyOf(model) === chosen);
const addressOf = (model) => `${encodeURIComponent(model.name)}/${encodeURIComponent(model.version)}`;

function milliseconds(value) {
  return value >= 10_000 ? `${(value / 1000).toFixed(1)} s` : `${value.toFixed(value >= 100 ? 0 : 1)} ms`;
}

function take(state) {
  const before = JSON.stringify(current()?.samples);
  models = state.models;
  if (!current()) choose(models.find((model) => model.default) ?? models[0]);
  showModels();
  if (JSON.stringify(current()?.samples) !== before) showSamples();
}

function choose(model) {
  chosen = model ? keyOf(model) : null;
  at("asked-model").textContent = model ? `Send an input to ${nameOf(model)}` : "No model is loaded";
  at("send").disabled = !model;
  showSamples();
}

// The version is shown only if the model has several.
function nameOf(model) {
  const versions = models.filter((other) => other.name === model.name);
  return versions.length > 1 ? `${model.name} ${model.version}` : model.name;
}

// A model that stays keeps its element, and with it the focus.
function showModels() {
  const list = at("model-list");
  const known = new Map([...list.children].map((label) => [label.dataset.key, label]));
  const labels = models.map((model) => {
    const label = known.get(keyOf(model)) ?? newModel(model);
    label.querySelector("input").checked = keyOf(model) === chosen;
    label.querySelector(".about").replaceChildren(...aboutModel(model));
    return label;
  });
  for (const label of known.values()) if (!labels.includes(label)) label.remove();
  for (const [index, label] of labels.entries()) {
    if (list.children[index] !== label) list.insertBefore(label, list.children[index] ?? null);
  }
}

function newModel(model) {
  const radio = make("input", { type: "radio", name: "model" });
  radio.addEventListener("change", () => choose(models.find((each) => keyOf(each) === label.dataset.key)));
  const label = make("label", { className: "model" }, radio, make("div", { className: "about" }));
  label.dataset.key = keyOf(model);
  return label;
}

function* aboutModel(model) {
  const dim = (text) => make("span", { className: "dim", textContent: text });
  const color = { ready: "good", loading: "warn", failed: "bad", "no workers": "dim" }[model.state];
  const name = make("div", {}, make("span", { className: "name", textContent: model.name }), " ", dim(model.version));
  if (model.default && nameOf(model) !== model.name) name.append(dim(", the default"));
  yield name;
  const facts = make("div", { className: "facts" }, make("b", { className: color, textContent: model.state }));
  if (model.workers) facts.append(dim(model.workers === 1 ? "1 worker" : `${model.workers} workers`));
  if (model.latencies.length) {
    const sorted = [...model.latencies].sort((one, other) => one - other);
    facts.append(dim(`p50 ${milliseconds(sorted[(sorted.length - 1) >> 1])}`));
  }
  yield facts;
  if (model.detail) yield make("div", { className: `detail ${color}`, textContent: model.detail });
  if (model.latencies.length > 1) yield course(model.latencies);
}

function course(values) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const most = Math.max(...values) || 1;
  const points = values.map((value, index) => `${index},${(22 - (20 * value) / most).toFixed(2)}`);
  svg.setAttribute("viewBox", `0 0 ${values.length - 1} 24`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `the latest ${values.length} took up to ${milliseconds(most)}`);
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  return svg;
}

async function poll() {
  try {
    take(await (await ask("/page/state")).json());
    at("connection").className = "dim";
    told(at("connection"), `marpack serve at ${location.host}`);
  } catch (error) {
    at("connection").className = "bad";
    told(at("connection"), error.message);
  }
}

// --- the input -------------------------------------------------------------------------------------------------------

const kind = () => document.querySelector("input[name=kind]:checked").value;

function chooseKind(value) {
  at(`kind-${value}`).checked = true;
  at("file-panel").hidden = value !== "file";
  at("text-panel").hidden = value === "file";
  at("text-label").textContent = value === "json" ? "JSON" : "Text";
  at("text").placeholder = value === "json" ? '{"instances": [1, 2, 3]}' : "Some text";
  at("problem").textContent = "";
}

function chooseFile(blob, name, url = null) {
  if (chosenFile) URL.revokeObjectURL(at("preview").src);
  chosenFile = { blob, name, url, type: blob.type || "application/octet-stream" };
  const preview = at("preview");
  preview.hidden = !chosenFile.type.startsWith("image/");
  preview.src = preview.hidden ? "" : URL.createObjectURL(blob);
  at("drop").classList.add("filled");
  at("file-name").textContent = name;
  at("file-hint").textContent = `${blob.size.toLocaleString("en")} bytes, ${chosenFile.type}`;
  chooseKind("file");
}

function chooseText(text, type) {
  at("text").value = text;
  chooseKind(type ?? (isJson(text) ? "json" : "text"));
}

function isJson(text) {
  try {
    return typeof JSON.parse(text) === "object"; // a lone number or word is a text
  } catch {
    return false;
  }
}

function showSamples() {
  const samples = current()?.samples ?? [];
  at("samples").hidden = samples.length === 0;
  at("sample-list").replaceChildren(...samples.map(sampleButton));
}

function sampleButton(sample) {
  const name = sample.name.slice(sample.name.lastIndexOf("/") + 1);
  const button = make("button", { type: "button", title: sample.name }, make("span", { textContent: name }));
  if (sample.content_type.startsWith("image/")) {
    const image = make("img", { src: sample.url, alt: "", loading: "lazy" });
    image.addEventListener("load", () => image.classList.toggle("tiny", image.naturalWidth < TINY));
    button.prepend(image);
  }
  button.addEventListener("click", () => sendSample(sample, name));
  return button;
}

async function sendSample(sample, name) {
  try {
    const response = await ask(sample.url);
    const blob = new Blob([await response.arrayBuffer()], { type: sample.content_type });
    const text = await blob.text();
    const editable = !/[\r\ufffd]/.test(text); // a text field would send other bytes
    if (editable && sample.content_type === TYPES.json && isJson(text)) chooseText(text, "json");
    else if (editable && sample.content_type === TYPES.text) chooseText(text, "text");
    else chooseFile(blob, name, sample.url);
    await send(name);
  } catch (error) {
    at("problem").textContent = error.message;
  }
}

// Returns { body, type, name, file }; throws an Error if the input is missing or not valid.
function readInput(name) {
  if (kind() === "file") {
    if (!chosenFile) throw new Error("Choose a file or a sample first.");
    return { body: chosenFile.blob, type: chosenFile.type, name: chosenFile.name, file: chosenFile };
  }
  const body = at("text").value;
  try {
    if (kind() === "json") JSON.parse(body);
  } catch (error) {
    throw new Error(`The input is not valid JSON: ${error.message}`);
  }
  return { body, type: TYPES[kind()], name: name ?? kind(), file: null };
}

// --- the response ----------------------------------------------------------------------------------------------------

async function send(name) {
  const model = current();
  if (!model) return;
  at("problem").textContent = "";
  pending?.abort();
  const mine = (pending = new AbortController());
  at("send").textContent = "Cancel";
  told(at("progress"), `Sending to ${model.name}…`);
  try {
    const input = readInput(name);
    const request = { method: "POST", body: input.body, headers: { "Content-Type": input.type }, signal: mine.signal };
    const answer = await (await ask(`/page/try/${addressOf(model)}`, request)).json();
    showAnswer(model, input, answer);
  } catch (error) {
    if (pending !== mine) return; // a later request has replaced it
    at("answer").hidden = true; // it belongs to an earlier request
    told(at("progress"), error.name === "AbortError" ? "Cancelled." : "");
    at("problem").textContent = error.name === "AbortError" ? "" : error.message;
  }
  pending = null;
  at("send").textContent = "Send";
  poll();
}

function showAnswer(model, input, answer) {
  const drawn = at("drawn");
  drawn.innerHTML = answer.html; // the server's own markup, everything in it escaped
  for (const element of drawn.querySelectorAll("[data-css]")) element.style.cssText = element.dataset.css;
  for (const name of drawn.querySelectorAll("article > h2 > .name")) name.textContent = titleOf(model, input);
  const queued = answer.queue_milliseconds ? `, of which ${milliseconds(answer.queue_milliseconds)} in the queue` : "";
  const came = answer.status ? `${answer.status} ${answer.phrase}`.trim() : "No response";
  told(at("progress"), `${came} after ${milliseconds(answer.milliseconds)}${queued}`);
  at("curl").textContent = commandOf(model, input);
  at("copy").textContent = "Copy";
  at("raw").hidden = !answer.text;
  at("body").textContent = shortened(answer.text ?? "");
  at("headers").replaceChildren(...answer.headers.map(headerRow));
  at("head").hidden = answer.headers.length === 0;
  at("answer").hidden = false;
  drawn.scrollIntoView({ block: "nearest" });
}

const titleOf = (model, input) => `${nameOf(model)}: ${input.name}`;
const headerRow = ([name, value]) =>
  make("tr", {}, make("th", { textContent: name }), make("td", { className: "mono", textContent: value }));

function shortened(text) {
  const more = text.length - SHOWN;
  return more > 0 ? `${text.slice(0, SHOWN)}\n… and ${more.toLocaleString("en")} more` : text;
}

// --- the command -----------------------------------------------------------------------------------------------------

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

function commandOf(model, input) {
  const path = model.default ? encodeURIComponent(model.name) : addressOf(model);
  const words = ["curl", "-H", `Content-Type: ${input.type}`, ...data(input), `${location.origin}/predictions/${path}`];
  const command = words.map(quoted).join(" ");
  return input.file?.url ? `curl -s ${quoted(location.origin + input.file.url)} |\n  ${command}` : command;
}

function data(input) {
  if (input.file) return ["--data-binary", input.file.url ? "@-" : `@${input.file.name}`];
  if (input.body.length > COMMAND) return ["--data-binary", input.type === TYPES.json ? "@input.json" : "@input.txt"];
  return ["--data-raw", input.body];
}

async function copy() {
  try {
    await navigator.clipboard.writeText(at("curl").textContent);
    at("copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(at("curl")); // only pages of this machine and of https may write the clipboard
    at("copy").textContent = "Press Ctrl+C";
  }
}

// --- messages -------------------------------------------------------------------------------------------------------

// A screen reader does not repeat an unchanged message.
function told(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Returns the response; throws an Error with a readable message.
async function ask(url, request = {}) {
  const response = await fetch(url, request).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("The server does not respond. Check that it is running.");
  });
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Error(said.message ?? `The server responded with status ${response.status}.`);
}

// --- events ----------------------------------------------------------------------------------------------------------

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (pending) pending.abort();
  else send();
});
at("ask").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !pending) send();
});
at("kinds").addEventListener("change", () => chooseKind(kind()));
at("file").addEventListener("change", () => {
  const [file] = at("file").files;
  if (file) chooseFile(file, file.name);
});
at("copy").addEventListener("click", copy);

document.addEventListener("dragover", (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  document.body.classList.add("dragged");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dragged");
});
document.addEventListener("drop", (event) => {
  document.body.classList.remove("dragged");
  const [file] = event.dataTransfer.files;
  if (!file) return;
  event.preventDefault();
  chooseFile(file, file.name);
});
document.addEventListener("paste", (event) => {
  const [file] = event.clipboardData.files;
  const text = event.clipboardData.getData("text/plain");
  if (file) chooseFile(file, file.name);
  else if (event.target !== at("text") && text) chooseText(text);
  else return;
  event.preventDefault();
});

setInterval(() => document.visibilityState === "visible" && poll(), POLL);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && poll());
chooseKind(kind());
take(JSON.parse(document.body.dataset.state));
poll();
