/** Elements made from data. Text goes in as text only, so no value of a dataset is ever markup. */

type Child = Node | string | null | undefined | false;
type Listener = (event: Event) => void;
type Attribute = string | number | boolean | Listener | null | undefined;

/**
 * Make an element.
 *
 * An attribute whose value is a function becomes a listener of that event; `true` sets an empty
 * attribute; `false`, `null` and `undefined` leave it out.
 */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, Attribute> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

/** Characters that are not seen, and those that turn the direction of the text around them. */
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A text whose every character is seen, so that no name looks like another one. */
export function visible(text: string): string {
  return text.replace(INVISIBLE, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Append children; strings become text nodes. */
export function append(parent: Node, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(typeof child === "string" ? document.createTextNode(visible(child)) : child);
  }
}

/** Replace what is inside an element. */
export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

/** The element of the page's own markup that has this id. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`The page has no element #${id}.`);
  return element as T;
}
