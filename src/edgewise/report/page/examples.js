export function examplesPanel(element, view, update) {
  return { render() {} };
}
