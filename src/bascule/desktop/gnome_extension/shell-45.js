// Bascule's extension for GNOME Shell 45 and later. The other part of this file is the same for every version.
import Clutter from 'gi://Clutter';
import Gio from 'gi://Gio';
import GLib from 'gi://GLib';
import Meta from 'gi://Meta';
import Shell from 'gi://Shell';
import St from 'gi://St';

import {Extension} from 'resource:///org/gnome/shell/extensions/extension.js';
import * as Main from 'resource:///org/gnome/shell/ui/main.js';
import * as Keyboard from 'resource:///org/gnome/shell/ui/status/keyboard.js';

export default class BasculeExtension extends Extension {
    enable() {
        this._desktop = new Desktop(this.metadata);
    }

    disable() {
        this._desktop?.close();
        this._desktop = null;
    }
}
