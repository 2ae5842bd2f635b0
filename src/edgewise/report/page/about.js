export function aboutPanel(element, view, update) {
  return { render() {} };
}
