"""The Qt window of the fixtures, for PyQt 6 or 5: whichever `--qt` names."""

import sys
import time

from own_state import OwnState

STATE = OwnState(sys.argv[1])
OPTIONS = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
if OPTIONS.get("--qt") == "5":
    from PyQt5 import QtCore, QtWidgets
else:
    from PyQt6 import QtCore, QtWidgets


class Window(QtWidgets.QWidget):
    def __init__(self):
        super().__init__()
        self.setWindowTitle(OPTIONS.get("--title", "Fixture"))
        self.resize(420, 360)
        self.column = QtWidgets.QVBoxLayout(self)
        self.button("Press me", lambda: STATE.add("pressed"))
        check = QtWidgets.QCheckBox("Agree")
        check.toggled.connect(lambda on: STATE.set(agreed=on))
        self.column.addWidget(check)
        self.entry("Name", "name")
        self.entry("Secret", "secret").setEchoMode(QtWidgets.QLineEdit.EchoMode.Password)
        slider = QtWidgets.QSlider(QtCore.Qt.Orientation.Horizontal)
        slider.setAccessibleName("Volume")
        slider.valueChanged.connect(lambda value: STATE.set(volume=value))
        self.column.addWidget(slider)
        self.button("Soon", lambda: QtCore.QTimer.singleShot(300, self.arrive))
        self.button("Ask", self.ask)
        rows = int(OPTIONS.get("--rows", "0"))
        if rows:
            area, inner = QtWidgets.QScrollArea(), QtWidgets.QWidget()
            column = QtWidgets.QVBoxLayout(inner)
            for number in range(rows):
                column.addWidget(QtWidgets.QPushButton(f"Row {number}"))
            area.setWidget(inner)
            self.column.addWidget(area)

    def button(self, label, act):
        button = QtWidgets.QPushButton(label)
        button.clicked.connect(lambda _: act())
        self.column.addWidget(button)

    def entry(self, name, key):
        entry = QtWidgets.QLineEdit()
        entry.setAccessibleName(name)
        entry.textChanged.connect(lambda text: STATE.set(**{key: text}))
        self.column.addWidget(entry)
        return entry

    def arrive(self):
        self.button("Arrived", lambda: STATE.add("arrived"))
        STATE.set(arrived_at=time.monotonic())

    def ask(self):
        box = QtWidgets.QMessageBox(self)
        box.setWindowTitle("Question")
        box.setText("Really?")
        box.setStandardButtons(QtWidgets.QMessageBox.StandardButton.Ok | QtWidgets.QMessageBox.StandardButton.Cancel)
        box.finished.connect(lambda code: STATE.set(dialog=code))
        box.open()
        STATE.set(dialog="open")


app = QtWidgets.QApplication(sys.argv[:1])
window = Window()
window.show()
QtCore.QTimer.singleShot(0, lambda: STATE.set(ready=True))
sys.exit(app.exec())
