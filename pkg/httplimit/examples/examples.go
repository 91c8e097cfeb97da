// Package examples has the middleware of httplimit in each family of routers, as a service would have it. It is a module of
// its own, so that who uses one router does not get all of them.
//
// Each function shows three things: where the middleware goes, what it takes to get it there, and where the attribute route, the
// pattern that the router has chosen, comes from.
package examples
