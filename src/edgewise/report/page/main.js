export function start(document){}
