// Package browsertest opens offpath's HTML pages in a real browser, headless Chromium: the load test's, and the console's with a fleet behind it. It is a
// module of its own, so that the browser's driver stays out of offpath's dependencies.
//
// Its tests fail if there is no Chromium; scripts/need.sh installs it where that is possible. To look at a page:
//
//	OFFPATH_SCREENSHOTS=/tmp/shots go test -count 1 .                                 # the test's own page
//	OFFPATH_SCREENSHOTS=/tmp/shots OFFPATH_PAGE=/tmp/report.html go test -count 1 .   # one of yours, which is tested too
package browsertest
