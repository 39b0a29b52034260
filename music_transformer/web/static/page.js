// What every part of the page uses of it.

export const $ = (id) => document.getElementById(id);

/** Show a line of text, or hide it. Text is text: a file's name cannot become HTML. */
export function say(id, text) {
  $(id).textContent = text ?? "";
  $(id).hidden = !text;
}

/** Show whether a toggle is on. */
export const press = (id, on) => $(id).setAttribute("aria-pressed", on);
