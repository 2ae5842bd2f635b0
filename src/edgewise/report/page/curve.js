export function curvePanel(element, view, update) {
  return { render() {} };
}
