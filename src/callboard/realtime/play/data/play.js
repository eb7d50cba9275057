"use strict";
const byId = (id) => document.getElementById(id);
const canvas = byId("picture");
const context = canvas.getContext("2d");

async function about() {
  const told = await (await fetch("about")).json();
  byId("name").textContent = told.name;
  byId("about").textContent = told.about;
  for (const slider of told.sliders) {
    const label = document.createElement("label");
    const input = document.createElement("input");
    const shown = document.createElement("output");
    label.textContent = slider.name;
    label.htmlFor = input.id = "slider-" + slider.name;
    Object.assign(input, { type: "range", min: slider.low, max: slider.high, step: "any", value: slider.value });
    const show = () => { shown.textContent = Number(input.value).toFixed(2); };
    let sending = false, again = false;
    const send = async () => {
      show();
      if (sending) { again = true; return; } // the newest value follows when the one before has arrived
      sending = true;
      do {
        again = false;
        const body = JSON.stringify({ name: slider.name, value: Number(input.value) });
        await fetch("set", { method: "POST", body }).catch(() => null);
      } while (again);
      sending = false;
    };
    input.addEventListener("input", send);
    show();
    byId("sliders").append(label, input, shown);
  }
}

let drawn = 0, last = -1, rate = 0, before = performance.now();

async function next() {
  const answer = await fetch("frame?after=" + last);
  if (!answer.ok) throw new Error((await answer.json()).error);
  const [width, height] = answer.headers.get("X-Size").split(" ").map(Number);
  const rgb = new Uint8Array(await answer.arrayBuffer());
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const image = context.createImageData(width, height);
  for (let i = 0, j = 0; i < rgb.length; i += 3, j += 4) {
    image.data[j] = rgb[i];
    image.data[j + 1] = rgb[i + 1];
    image.data[j + 2] = rgb[i + 2];
    image.data[j + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  last = Number(answer.headers.get("X-Frame"));
  drawn += 1;
  const now = performance.now();
  rate += 0.1 * (1000 / Math.max(1, now - before) - rate);
  before = now;
  window.shown = { drawn, last };
  byId("figures").textContent = `${answer.headers.get("X-Time")} s, frame ${last}, ${rate.toFixed(0)} frames a second`;
}

async function loop() {
  for (;;) {
    try {
      await next();
    } catch (error) {
      byId("figures").textContent = `no frames: ${error.message}`;
      await new Promise((done) => setTimeout(done, 1000));
    }
    await new Promise(requestAnimationFrame); // a hidden page asks for nothing
  }
}

about().then(loop);
