// Charts as PNG files, and the print button. A drawing is copied with the colours it has on the page.

const SCALE = 2;
const COPIED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "opacity"];

function drawn(svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  const copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((element, index) => {
    const style = getComputedStyle(element);
    for (const name of COPIED) copies[index].setAttribute(name, style.getPropertyValue(name));
    copies[index].removeAttribute("class");
  });
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("width", width * SCALE);
  copy.setAttribute("height", height * SCALE);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return { text: new XMLSerializer().serializeToString(copy), width: width * SCALE, height: height * SCALE };
}

async function save(svg, name) {
  const { text, width, height } = drawn(svg);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(svg.closest(".card")).backgroundColor;
  context.fillRect(0, 0, width, height);
  context.drawImage(image, 0, 0, width, height);
  const link = document.createElement("a");
  link.href = canvas.toDataURL("image/png");
  link.download = `${name}.png`;
  link.click();
}

for (const button of document.querySelectorAll("[data-png]")) {
  button.addEventListener("click", () => save(document.getElementById(button.dataset.png), button.dataset.name));
}
document.querySelector("[data-print]")?.addEventListener("click", () => window.print());
